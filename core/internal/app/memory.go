package app

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// smallHeap is up to what the runtime may use before it collects more often than for the heap's growth alone, in bytes:
// with a thousand jobs the server stays below it, and below 150 MB with all that is no heap.
const smallHeap = 80 << 20

// staySmall keeps a small server small: what a burst leaves behind is collected and given back soon. A server that needs
// more is not held at that limit, for it would do nothing but collect; there, twice what lives is allowed, as without a
// limit. It returns when ctx ends, and at once when the operator has set a limit.
func staySmall(ctx context.Context) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	before := debug.SetMemoryLimit(smallHeap)
	defer debug.SetMemoryLimit(before)
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	limit := int64(smallHeap)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		metrics.Read(samples)
		live, rest := samples[0].Value.Uint64(), samples[1].Value.Uint64()
		for _, heap := range samples[2:] {
			rest -= min(rest, heap.Value.Uint64())
		}
		// Room for a quarter of what lives makes collecting worth it; with less, the heap's growth alone decides.
		next := int64(smallHeap)
		if int64(live+live/4+rest) > next {
			next = int64(3*live + rest)
		}
		if next != limit {
			limit = next
			debug.SetMemoryLimit(limit)
		}
	}
}
