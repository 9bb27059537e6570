// Package schema makes and checks the JSON Schemas by which plugins describe their configuration, so that forms,
// validation, command line flags and docs need nothing else.
//
// The usual way is a struct. Field names come from "json" tags; a field without omitempty is required; everything else
// comes from "jsonschema" tags:
//
//	type Config struct {
//		Server string `json:"server" jsonschema:"title=Server,format=uri"`
//		Token  string `json:"token" jsonschema:"title=Token" jsonschema_extras:"x-nagelfluh-secret=true"`
//		Notes  string `json:"notes,omitempty" jsonschema_extras:"x-nagelfluh-textarea=true"`
//		Zone   string `json:"zone,omitempty" jsonschema:"enum=eu,enum=us,default=eu"`
//	}
//
//	var configSchema = schema.MustOf[Config]()
//
// What a schema may say is the profile of [Compile].
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/invopop/jsonschema"

	"github.com/nagelfluh/nagelfluh/sdk/field"
)

// Keywords of our own, beside those of JSON Schema.
const (
	// SecretKeyword marks a value that is write-only: never shown again, never logged.
	SecretKeyword = "x-nagelfluh-secret"
	// TextareaKeyword marks a text of several lines.
	TextareaKeyword = "x-nagelfluh-textarea"
	// HelpCommandKeyword holds a command that yields the value; it is shown with a copy button.
	HelpCommandKeyword = "x-nagelfluh-help-command"
)

// Of returns the JSON Schema of a struct type. Fields with pointers to their own type cannot be described.
func Of[T any]() ([]byte, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is not a struct", t)
	}
	if recursive(t, nil) {
		return nil, fmt.Errorf("%s contains itself; the schema profile has no references", t)
	}
	reflector := jsonschema.Reflector{Anonymous: true, DoNotReference: true, ExpandedStruct: true}
	raw, err := json.Marshal(reflector.ReflectFromType(t))
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", t, err)
	}
	if _, err := Compile(raw); err != nil {
		return nil, fmt.Errorf("schema of %s: %w", t, err)
	}
	return raw, nil
}

// MustOf is [Of] for package variables; it panics on what a developer must mend.
func MustOf[T any]() []byte {
	raw, err := Of[T]()
	if err != nil {
		panic(err)
	}
	return raw
}

// Decode reads a config into a struct: it is checked against the struct's schema first, and defaults are filled in.
// What is wrong is returned as field.Errors, without values.
func Decode[T any](config []byte) (T, error) {
	var out T
	raw, err := Of[T]()
	if err != nil {
		return out, err
	}
	compiled, err := Compile(raw)
	if err != nil {
		return out, err
	}
	filled, errs := compiled.Check(config)
	if err := errs.Err(); err != nil {
		return out, err
	}
	decoder := json.NewDecoder(bytes.NewReader(filled))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&out); err != nil {
		// The decoder's own text may quote the value.
		var mismatch *json.UnmarshalTypeError
		if errors.As(err, &mismatch) {
			return out, field.Errorf("", "The field %s needs a %s.", mismatch.Field, mismatch.Type)
		}
		return out, field.Errorf("", "The config does not fit; compare it with the documentation of the plugin.")
	}
	return out, nil
}

// recursive says whether a type contains itself, which reflection would follow for ever.
func recursive(t reflect.Type, path []reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return recursive(t.Elem(), path)
	case reflect.Struct:
		for _, above := range path {
			if above == t {
				return true
			}
		}
		path = append(path, t)
		for i := range t.NumField() {
			if recursive(t.Field(i).Type, path) {
				return true
			}
		}
	}
	return false
}
