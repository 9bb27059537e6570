package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/labstack/echo/v4"

	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

// maxFaults bounds the field errors of one answer.
const maxFaults = 100

// validate holds the request against the contract.
func validate(r *http.Request, route *routers.Route, params map[string]string) error {
	if route.Operation.RequestBody != nil {
		media, _, _ := strings.Cut(r.Header.Get(echo.HeaderContentType), ";")
		if !strings.EqualFold(strings.TrimSpace(media), echo.MIMEApplicationJSON) {
			return problem.New(problem.UnsupportedMedia, "send the body as application/json")
		}
		if err := wellFormed(r); err != nil {
			return err
		}
	}
	err := openapi3filter.ValidateRequest(r.Context(), &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{
			MultiError: true, SkipSettingDefaults: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
		},
	})
	if err != nil {
		return invalid(err)
	}
	return nil
}

// wellFormed reads the body and makes sure that it is one JSON document and nothing else: the decoders behind it stop at
// the end of the first.
func wellFormed(r *http.Request) error {
	raw, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return err
	case err != nil: // the client broke off, or was too slow
		return problem.New(problem.MalformedJSON, "the body cannot be read to its end").Because(err)
	}
	if !utf8.Valid(raw) { // a decoder would put other characters in place of what was sent
		return problem.New(problem.MalformedJSON, "the body is not UTF-8")
	}
	if len(raw) > 0 && !json.Valid(raw) {
		var doc any
		return problem.New(problem.MalformedJSON, "the body is not valid JSON: %s", json.Unmarshal(raw, &doc))
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	return nil
}

// route returns the contract's operation for what Echo has found; nil: it is none.
func (s *Server) route(c echo.Context) (*routers.Route, map[string]string) {
	path, ours := strings.CutPrefix(c.Path(), BasePath)
	if !ours {
		return nil, nil
	}
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if name, isParam := strings.CutPrefix(p, ":"); isParam {
			parts[i] = "{" + name + "}"
		}
	}
	path = strings.Join(parts, "/")
	item := s.doc.Paths.Value(path)
	if item == nil {
		return nil, nil
	}
	op := item.GetOperation(c.Request().Method)
	if op == nil {
		return nil, nil
	}
	params := map[string]string{}
	for i, name := range c.ParamNames() {
		params[name] = c.ParamValues()[i]
	}
	return &routers.Route{Spec: s.doc, Path: path, PathItem: item, Method: c.Request().Method, Operation: op}, params
}

// invalid turns the validator's findings into a refusal. Their texts may hold the values, so only the reasons are used.
func invalid(err error) error {
	f := findings{code: problem.Invalid}
	f.collect(err, "")
	if len(f.fields) == 0 {
		return problem.New(f.code, "the request does not keep to the contract; /docs has it").Because(err)
	}
	if len(f.fields) > maxFaults {
		f.fields = f.fields[:maxFaults]
	}
	return problem.Fields(f.code, f.fields)
}

var unsupported = regexp.MustCompile(`^property "(.*)" is unsupported$`)

type findings struct {
	code   problem.Code
	fields []problem.Field
}

func (f *findings) collect(err error, param string) {
	switch e := err.(type) { //nolint:errorlint // the validator's tree is walked node by node
	case openapi3.MultiError:
		for _, one := range e {
			f.collect(one, param)
		}
	case *openapi3filter.RequestError:
		f.request(e, param)
	case *openapi3.SchemaError:
		f.schema(e, param)
	case *openapi3filter.ParseError:
		f.parse(e, param)
	default:
		f.other(err, param)
	}
}

func (f *findings) request(e *openapi3filter.RequestError, param string) {
	if e.Parameter != nil {
		param = e.Parameter.Name
		f.code = problem.BadParameter
	}
	switch {
	case e.Err == nil || errors.Is(e.Err, openapi3filter.ErrInvalidRequired):
		field := param
		if field == "" {
			field = "body"
		}
		f.add(field, "is missing")
	default:
		f.collect(e.Err, param)
	}
}

func (f *findings) schema(e *openapi3.SchemaError, param string) {
	// allOf, anyOf and the like carry what is wrong below them.
	if e.Origin != nil {
		var below *openapi3.SchemaError
		if multi := (openapi3.MultiError)(nil); errors.As(e.Origin, &multi) || errors.As(e.Origin, &below) {
			f.collect(e.Origin, param)
			return
		}
	}
	field := fieldPath(e.JSONPointer())
	if param != "" {
		field = param
	}
	reason := e.Reason
	if m := unsupported.FindStringSubmatch(reason); m != nil && param == "" {
		field, reason = fieldPath(append(e.JSONPointer(), m[1])), "is no field of the contract"
	}
	if field == "" {
		field = "body"
	}
	f.add(field, reason)
}

func (f *findings) parse(e *openapi3filter.ParseError, param string) {
	if param == "" {
		param = "body"
	}
	f.add(param, "cannot be read: "+e.Reason)
}

func (f *findings) other(err error, param string) {
	if inner := errors.Unwrap(err); inner != nil {
		f.collect(inner, param)
		return
	}
	if param == "" {
		param = "body"
	}
	f.add(param, err.Error())
}

func (f *findings) add(field, message string) {
	f.fields = append(f.fields, problem.Field{Field: field, Message: message})
}
