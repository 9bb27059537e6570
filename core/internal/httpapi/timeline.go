package httpapi

import (
	"context"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/httpapi/gen"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

func (h *handlers) GetTimeline(ctx context.Context, r gen.GetTimelineRequestObject) (gen.GetTimelineResponseObject, error) {
	v, err := h.version(ctx, r.Version)
	if err != nil {
		return nil, err
	}
	n := pageSize(given(r.Params.Limit))
	// One event more says whether there is a next page.
	events, err := h.o.Store.Events(ctx, store.EventFilter{VersionID: v.ID, After: given(r.Params.After), Limit: n + 1})
	if err != nil {
		return nil, err
	}
	out := gen.GetTimeline200JSONResponse{}
	if len(events) > n {
		events = events[:n]
		out.NextAfter = events[n-1].Seq
	}
	out.Items = each(events, func(e event.Event) gen.Event { return toEvent(ctx, h.names, e) })
	return out, nil
}
