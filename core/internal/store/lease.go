package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// settingEpoch is the key of what this database knows of its own servers. A copy of the database has a past in common
// with it, and another future.
const settingEpoch = "epoch"

// writersKept is how many of the last servers are known. A Lease that an older one wrote is taken for a stranger's.
const writersKept = 1000

type epochs struct {
	Epoch   int64    `json:"epoch"`
	Writers []string `json:"writers"`
}

// BeginEpoch notes that a server begins to work on this database, and advances the epoch. It returns the epoch before
// and after, and all servers that are known to have worked on it, the new one included.
func (db *DB) BeginEpoch(ctx context.Context, writer string) (before, epoch int64, writers []string, err error) {
	err = db.changeEpochs(ctx, func(e *epochs) {
		before = e.Epoch
		e.Epoch++
		if !slices.Contains(e.Writers, writer) {
			e.Writers = append(e.Writers, writer)
		}
		e.Writers = e.Writers[max(0, len(e.Writers)-writersKept):]
		epoch, writers = e.Epoch, slices.Clone(e.Writers)
	})
	return before, epoch, writers, err
}

// AdvanceEpoch makes the epoch greater than it is and than the given one.
func (db *DB) AdvanceEpoch(ctx context.Context, beyond int64) (epoch int64, err error) {
	err = db.changeEpochs(ctx, func(e *epochs) {
		e.Epoch = max(e.Epoch, beyond) + 1
		epoch = e.Epoch
	})
	return epoch, err
}

func (db *DB) changeEpochs(ctx context.Context, change func(*epochs)) error {
	return db.write(ctx, "epoch", func(t *tx) error {
		value, err := setting(ctx, t, settingEpoch)
		if err != nil {
			return err
		}
		var e epochs
		if value != "" {
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				return fmt.Errorf("the setting %q cannot be read: %w", settingEpoch, err)
			}
		}
		change(&e)
		return t.setSetting(ctx, settingEpoch, toJSON(e))
	})
}
