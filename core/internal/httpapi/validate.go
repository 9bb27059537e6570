package httpapi

import (
	"errors"
	"io"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/labstack/echo/v4"

	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

// maxFaults bounds the field errors of one answer.
const maxFaults = 100

// validated holds the request against the contract. Echo has found the route already, so the contract's operation is
// looked up by it.
func (s *Server) validated(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		route, params := s.route(c)
		if route == nil {
			return next(c) // no route of the contract: Echo answers
		}
		r := c.Request()
		if route.Operation.RequestBody != nil {
			media, _, _ := strings.Cut(r.Header.Get(echo.HeaderContentType), ";")
			if !strings.EqualFold(strings.TrimSpace(media), echo.MIMEApplicationJSON) {
				return problem.New(problem.UnsupportedMedia, "send the body as application/json")
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
		return next(c)
	}
}

func (s *Server) route(c echo.Context) (*routers.Route, map[string]string) {
	path := strings.TrimPrefix(c.Path(), BasePath)
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
	if f.fatal != nil {
		return f.fatal
	}
	if len(f.fields) == 0 {
		return problem.New(f.code, "the request does not keep to the contract; /docs has it").Because(err)
	}
	if len(f.fields) > maxFaults {
		f.fields = f.fields[:maxFaults]
	}
	return problem.Fields(f.code, f.fields)
}

type findings struct {
	code   problem.Code
	fields []problem.Field
	fatal  error
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
	if field == "" {
		field = "body"
	}
	f.add(field, e.Reason)
}

func (f *findings) parse(e *openapi3filter.ParseError, param string) {
	if f.tooLarge(e) {
		return
	}
	if param != "" {
		f.add(param, "cannot be read: "+e.Reason)
		return
	}
	f.fatal = problem.New(problem.MalformedJSON, "the body is not valid JSON: %s", rootCause(e))
}

func (f *findings) other(err error, param string) {
	if err == nil || f.tooLarge(err) {
		return
	}
	if inner := errors.Unwrap(err); inner != nil {
		f.collect(inner, param)
		return
	}
	if param == "" {
		f.fatal = problem.New(problem.MalformedJSON, "the body cannot be read: %s", err)
		return
	}
	f.add(param, err.Error())
}

func (f *findings) tooLarge(err error) bool {
	if p := refusal(err); p.Code == problem.TooLarge {
		f.fatal = p
		return true
	}
	return false
}

func (f *findings) add(field, message string) {
	f.fields = append(f.fields, problem.Field{Field: field, Message: message})
}

func rootCause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends too early"
	}
	return err.Error()
}
