package dispatch

import (
	"context"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
)

// news are the kinds of events that others cause and dispatch acts on. What it causes itself it need not read.
var news = []event.Kind{event.Submitted, event.Retried, event.CancelRequested, event.ClusterChanged}

const feedPage = 1000

// feed reads the news since seq and wakes those concerned, until ctx ends.
func (d *Dispatcher) feed(ctx context.Context, seq int64) {
	woken, cancel := d.o.Store.Hub().Subscribe(news...)
	defer cancel()
	scan := d.o.Clock.NewTicker(d.o.Scan)
	defer scan.Stop()
	for {
		next, err := d.readNews(ctx, seq)
		if err != nil && ctx.Err() == nil {
			d.log.Warn("cannot read events; trying again", "error", err)
		}
		seq = next
		select {
		case <-ctx.Done():
			return
		case <-woken:
		case <-scan.C():
		}
	}
}

func (d *Dispatcher) readNews(ctx context.Context, seq int64) (int64, error) {
	for {
		page, err := d.o.Store.News(ctx, seq, news, feedPage)
		if err != nil {
			return seq, err
		}
		d.tell(ctx, page)
		if len(page) > 0 {
			seq = page[len(page)-1].Seq
		}
		if len(page) < feedPage {
			return seq, nil
		}
	}
}

func (d *Dispatcher) tell(ctx context.Context, page []event.Event) {
	var submitted, clusters bool
	for _, e := range page {
		switch e.Kind {
		case event.Submitted, event.Retried:
			submitted = true
		case event.ClusterChanged:
			clusters = true
		case event.CancelRequested:
			d.place.forget(e.AttemptID)
			d.fleet.reload(ctx, e.AttemptID)
		}
	}
	if submitted {
		d.place.wake()
	}
	if clusters {
		d.fleet.refresh()
		d.place.changed()
	}
}
