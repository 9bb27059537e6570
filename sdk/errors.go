package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nagelfluh/nagelfluh/sdk/field"
	"github.com/nagelfluh/nagelfluh/sdk/internal/fault"
	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
)

// toStatus gives an author's error its code. Codes of gRPC clients that the author used are not passed on: an
// UNIMPLEMENTED from some other service would be read as this plugin's.
func toStatus(err error) error {
	var classed *fault.Fault
	switch errs, isField := asFieldErrors(err); {
	case isField:
		return status.Error(codes.InvalidArgument, errs.Error())
	case errors.As(err, &classed):
		return status.Error(classed.Code, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	}
	return status.Error(codes.Unknown, err.Error())
}

// asFieldErrors finds field errors in an author's error.
func asFieldErrors(err error) (field.Errors, bool) {
	var errs field.Errors
	if errors.As(err, &errs) && len(errs) > 0 {
		return errs, true
	}
	var one field.Error
	if errors.As(err, &one) {
		return field.Errors{one}, true
	}
	return nil, false
}

func fieldErrors(errs field.Errors) []*pluginv1.FieldError {
	out := make([]*pluginv1.FieldError, len(errs))
	for i, e := range errs {
		out[i] = &pluginv1.FieldError{Path: e.Path, Message: e.Message}
	}
	return out
}

// marshalObject writes an author's value as the JSON object that the contract wants.
func marshalObject(value any) ([]byte, bool) {
	if raw, ok := value.([]byte); ok {
		value = json.RawMessage(raw) // not base64
	}
	raw, err := json.Marshal(value)
	if err != nil || len(raw) == 0 || raw[0] != '{' {
		return nil, false
	}
	return raw, true
}

func isEmptyObject(raw []byte) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(bytes.TrimSpace(raw), &object) == nil && object != nil && len(object) == 0
}
