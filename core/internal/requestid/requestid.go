// Package requestid carries the id of one API request through contexts into the logs of plugin and cluster calls.
package requestid

import "context"

type key struct{}

// With returns a context that carries the id.
func With(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, key{}, id)
}

// From returns the id of the request that ctx belongs to; empty: none.
func From(ctx context.Context) string {
	id, _ := ctx.Value(key{}).(string)
	return id
}
