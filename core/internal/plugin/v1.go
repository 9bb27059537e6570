package plugin

import (
	"context"
	"fmt"
	"net/url"
	"unicode/utf8"

	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
	"github.com/nagelfluh/nagelfluh/sdk/schema"
)

// The files v1*.go are the facade of the contract's version 1: what is generated stops here. They check the shape of every
// answer; an unset or unknown member is an error.

// description is what a plugin says of itself.
type description struct {
	name, version, title, docsURL string
	able                          map[pluginv1.Capability]bool
	schema                        *schema.Schema // nil: takes no configuration
}

// authorsFault is the remedy for a breach of the contract.
const authorsFault = "update the plugin, or tell its author"

func breach(format string, args ...any) *problem {
	return broken(fmt.Sprintf(format, args...), authorsFault)
}

// describe asks who the plugin is and holds the answer against the contract. Unknown capabilities are returned apart.
func (in *instance) describe(ctx context.Context, hostVersion string, kind Kind) (d description, unknown []int32, err error) {
	r, err := in.plugin.Describe(ctx, &pluginv1.DescribeRequest{HostVersion: hostVersion})
	if err != nil {
		return description{}, nil, err
	}
	d = description{name: r.GetName(), version: r.GetVersion(), title: r.GetTitle(), docsURL: r.GetDocsUrl(), able: map[pluginv1.Capability]bool{}}
	kinds := map[pluginv1.Kind]Kind{pluginv1.Kind_KIND_PROVIDER: Provider, pluginv1.Kind_KIND_SELECTOR: Selector}
	said, known := kinds[r.GetKind()]
	switch {
	case !known:
		return d, nil, breach("it says of itself that it is neither a provider nor a selector (kind %d)", r.GetKind())
	case said != kind:
		return d, nil, broken(fmt.Sprintf("its file name says %s, but it says of itself that it is a %s", kind, said),
			fmt.Sprintf("rename the file to begin with %s-", said))
	case d.name == "" || utf8.RuneCountInString(d.name) > 100 || d.version == "" || len(d.version) > 200:
		return d, nil, breach("it gives no name of at most 100 characters or no version")
	case utf8.RuneCountInString(d.title) > 200:
		return d, nil, breach("its title has more than 200 characters")
	}
	if u, err := url.Parse(d.docsURL); d.docsURL != "" && (err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "") {
		return d, nil, breach("the address of its documentation is no http or https address")
	}
	if d.title == "" {
		d.title = d.name
	}
	for _, c := range r.GetCapabilities() {
		if _, named := pluginv1.Capability_name[int32(c)]; !named || c == pluginv1.Capability_CAPABILITY_UNSPECIFIED {
			unknown = append(unknown, int32(c))
			continue
		}
		d.able[c] = true
	}
	if len(r.GetConfigSchema()) > 0 {
		if d.schema, err = schema.Compile(r.GetConfigSchema()); err != nil {
			return d, unknown, breach("the schema of its configuration: %v", err)
		}
	}
	return d, unknown, nil
}

// configure hands over the configuration, which must have passed the schema.
func (in *instance) configure(ctx context.Context, config []byte) error {
	r, err := in.plugin.Configure(ctx, &pluginv1.ConfigureRequest{Config: config})
	if err != nil {
		return err
	}
	return invalid(r.GetFieldErrors())
}

// invalid makes an *InvalidConfig of field errors, or nil when there are none.
func invalid(errs []*pluginv1.FieldError) error {
	if len(errs) == 0 {
		return nil
	}
	return &InvalidConfig{Fields: fieldErrors(errs)}
}

func fieldErrors(errs []*pluginv1.FieldError) []FieldError {
	fields := make([]FieldError, 0, len(errs))
	for _, e := range errs {
		message := cut(e.GetMessage(), maxReason)
		if message == "" {
			message = "is not accepted; the plugin does not say why"
		}
		fields = append(fields, FieldError{Path: cut(e.GetPath(), maxReason), Message: message})
	}
	return fields
}
