package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

func (c *command) storageCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the storage backends (admins)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			out, err := call[client.StorageBackendList](api.ListStorageBackends(cmd.Context()))
			if err != nil {
				return err
			}
			return c.print(out, func(w io.Writer) { writeStorage(w, out.Items...) })
		},
	}
	get := &cobra.Command{
		Use: "get BACKEND", Short: "Show one storage backend in full (admins)", Args: exactly(1, "a storage backend's name or id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			out, err := call[client.StorageBackend](api.GetStorageBackend(cmd.Context(), args[0]))
			if err != nil {
				return err
			}
			if c.output == "table" {
				c.output = "yaml"
			}
			return c.print(out, nil)
		},
	}
	rm := &cobra.Command{
		Use: "rm BACKEND", Short: "Remove a storage backend that no project uses (admins)", Args: exactly(1, "a storage backend's name or id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			_, err = call[struct{}](api.DeleteStorageBackend(cmd.Context(), args[0], &client.DeleteStorageBackendParams{}))
			return err
		},
	}
	return group("storage", "Where projects keep their data", list, get, c.storageAdd(), c.storageTest(), c.storageEdit(), rm, c.storageDefault())
}

func writeStorage(w io.Writer, all ...client.StorageBackend) {
	row(w, "NAME", "TYPE", "ENDPOINT", "REGION", "BUCKET", "PREFIX", "PROJECTS", "DEFAULT", "LABELS", "ID", "NOTE")
	for _, b := range all {
		note := ""
		if !b.HasCredentials {
			note = "its credentials cannot be decrypted: give it new ones"
		}
		row(w, b.Name, b.Type, b.Endpoint, b.Region, b.Bucket, b.Prefix, b.Projects, yes(b.Default), labels(b.Labels), b.ID, note)
	}
}

// storageFlags are what connects to a storage backend.
type storageFlags struct {
	endpoint, region, bucket, prefix, credentials string
	pathStyle                                     bool
}

func (s *storageFlags) define(f *pflag.FlagSet) {
	f.StringVar(&s.endpoint, "endpoint", "", "`URL` of the server, such as https://s3.example.org")
	f.StringVar(&s.region, "region", "", "region (default us-east-1, which servers without regions take)")
	f.StringVar(&s.bucket, "bucket", "", "bucket; it must exist")
	f.StringVar(&s.prefix, "prefix", "", "what the keys of all projects begin with")
	f.BoolVar(&s.pathStyle, "path-style", false, "https://endpoint/bucket, as most servers other than AWS want it")
	f.StringVar(&s.credentials, "credentials", "", "`FILE` in YAML or JSON with access_key_id, secret_access_key and perhaps session_token; -: standard input")
}

// secret reads the file of credentials; nil: none was given.
func (s *storageFlags) secret(in io.Reader) (*client.StorageCredentials, error) {
	if s.credentials == "" {
		return nil, nil
	}
	raw, err := readFile(s.credentials, in)
	if err != nil {
		return nil, fmt.Errorf("read the credentials: %w", err)
	}
	out := &client.StorageCredentials{}
	if err := yaml.UnmarshalStrict(raw, out); err != nil { // its text may quote the file
		return nil, errors.New("--credentials: the file is no YAML or JSON with access_key_id, secret_access_key and perhaps session_token alone")
	}
	return out, nil
}

func (c *command) storageAdd() *cobra.Command {
	var in storageFlags
	var marks []string
	var noTest bool
	cmd := &cobra.Command{
		Use: "add NAME --endpoint URL --bucket BUCKET --credentials FILE", Short: "Add a storage backend (admins)", Args: exactly(1, "a name"),
		Long:    "Add a storage backend of the type s3. It is tested first: an object is written, read and deleted below the prefix.",
		Example: "  nagelfluh storage add lake --endpoint https://s3.example.org --bucket lake --path-style --credentials ./lake.yaml",
	}
	in.define(cmd.Flags())
	cmd.Flags().StringArrayVar(&marks, "label", nil, "label NAME=VALUE, which selectors see (repeatable)")
	cmd.Flags().BoolVar(&noTest, "no-test", false, "store it although it cannot be reached now")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := c.connect()
		if err != nil {
			return err
		}
		keys, err := in.secret(c.In)
		if err != nil {
			return err
		}
		if keys == nil || in.endpoint == "" || in.bucket == "" {
			return usage("storage add wants --endpoint, --bucket and --credentials")
		}
		body := client.StorageBackendCreate{
			Name: args[0], Endpoint: in.endpoint, Region: in.region, Bucket: in.bucket, Prefix: in.prefix, PathStyle: in.pathStyle, Credentials: *keys,
		}
		if err := pairs("label", marks, &body.Labels); err != nil {
			return err
		}
		p := &client.CreateStorageBackendParams{}
		if noTest {
			p.ConnectionTest = optional(client.CreateStorageBackendParamsConnectionTestSkip)
		}
		return c.storageChanged(call[client.StorageBackend](api.CreateStorageBackend(cmd.Context(), p, body)))
	}
	return cmd
}

func (c *command) storageEdit() *cobra.Command {
	var in storageFlags
	var name, ifMatch string
	var marks []string
	var noTest bool
	cmd := &cobra.Command{
		Use: "edit BACKEND [flags]", Short: "Change a storage backend (admins); only what is given changes", Args: exactly(1, "a storage backend's name or id"),
		Long: "Change a storage backend. Only what is given changes; a new endpoint needs the credentials anew. New Jobs get changed credentials, a Job\n" +
			"that is there keeps those that it was made with.",
	}
	f := cmd.Flags()
	in.define(f)
	f.StringVar(&name, "name", "", "its new name")
	f.StringArrayVar(&marks, "label", nil, "all its labels NAME=VALUE (repeatable)")
	f.BoolVar(&noTest, "no-test", false, "store it although it cannot be reached now")
	f.StringVar(&ifMatch, "if-match", "", "change it only when it still has this revision")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := c.connect()
		if err != nil {
			return err
		}
		now, err := in.patch(f, c.In)
		if err != nil {
			return err
		}
		body := client.StorageBackendPatch{
			Endpoint: now.Endpoint, Region: now.Region, Bucket: now.Bucket, Prefix: now.Prefix, PathStyle: now.PathStyle, Credentials: now.Credentials,
		}
		if f.Changed("name") {
			body.Name = &name
		}
		if f.Changed("label") {
			set := map[string]string{}
			if err := pairs("label", marks, &set); err != nil {
				return err
			}
			body.Labels = &set
		}
		p := &client.UpdateStorageBackendParams{}
		if noTest {
			p.ConnectionTest = optional(client.UpdateStorageBackendParamsConnectionTestSkip)
		}
		if ifMatch != "" {
			p.IfMatch = optional(fmt.Sprintf("%q", ifMatch))
		}
		return c.storageChanged(call[client.StorageBackend](api.UpdateStorageBackend(cmd.Context(), args[0], p, body)))
	}
	return cmd
}

// patch has the flags that were given.
func (s *storageFlags) patch(f *pflag.FlagSet, in io.Reader) (out client.StorageTestPatch, err error) {
	for flag, set := range map[string]func(){
		"endpoint": func() { out.Endpoint = &s.endpoint }, "region": func() { out.Region = &s.region }, "bucket": func() { out.Bucket = &s.bucket },
		"prefix": func() { out.Prefix = &s.prefix }, "path-style": func() { out.PathStyle = &s.pathStyle },
	} {
		if f.Changed(flag) {
			set()
		}
	}
	out.Credentials, err = s.secret(in)
	return out, err
}

func (c *command) storageTest() *cobra.Command {
	var in storageFlags
	cmd := &cobra.Command{
		Use: "test [BACKEND] [flags]", Short: "Test a storage backend, or one that is not stored (admins)", Args: cobra.MaximumNArgs(1),
		Long: "Test a storage backend as it is stored, or with the given flags in place of what is stored; without one, what the flags say. An object\n" +
			"is written, read and deleted. The exit code is 1 when that fails.",
	}
	in.define(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := c.connect()
		if err != nil {
			return err
		}
		var r client.StorageReport
		if len(args) == 1 {
			body, err := in.patch(cmd.Flags(), c.In)
			if err != nil {
				return err
			}
			if r, err = call[client.StorageReport](api.TestStorageBackend(cmd.Context(), args[0], body)); err != nil {
				return err
			}
		} else {
			keys, err := in.secret(c.In)
			if err != nil {
				return err
			}
			if keys == nil || in.endpoint == "" || in.bucket == "" {
				return usage("give a storage backend, or --endpoint, --bucket and --credentials")
			}
			if r, err = call[client.StorageReport](api.TestStorage(cmd.Context(), client.StorageTestRequest{
				Endpoint: in.endpoint, Region: in.region, Bucket: in.bucket, Prefix: in.prefix, PathStyle: in.pathStyle, Credentials: *keys,
			})); err != nil {
				return err
			}
		}
		if err := c.print(r, func(w io.Writer) {
			row(w, "OUTCOME", "STEP", "TOOK", "MESSAGE")
			row(w, r.Class, r.Step, millis(r.TookMs), r.Message)
		}); err != nil {
			return err
		}
		if !r.Ok {
			return &exit{code: ExitError} // the report has said why
		}
		return nil
	}
	return cmd
}

func (c *command) storageDefault() *cobra.Command {
	var none bool
	cmd := &cobra.Command{Use: "default [BACKEND]", Short: "Show the default storage backend, or set it (admins)", Args: cobra.MaximumNArgs(1)}
	cmd.Flags().BoolVar(&none, "none", false, "have no default: projects that nobody decides for get no storage")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := c.connect()
		if err != nil {
			return err
		}
		var out client.DefaultStorage
		switch {
		case none && len(args) > 0:
			return usage("give a storage backend or --none, not both")
		case none:
			out, err = call[client.DefaultStorage](api.SetDefaultStorage(cmd.Context(), client.DefaultStorageSet{}))
		case len(args) > 0:
			out, err = call[client.DefaultStorage](api.SetDefaultStorage(cmd.Context(), client.DefaultStorageSet{Storage: args[0]}))
		default:
			out, err = call[client.DefaultStorage](api.GetDefaultStorage(cmd.Context()))
		}
		if err != nil {
			return err
		}
		return c.print(out, func(w io.Writer) { row(w, nameOr(out.StorageName, "none"), out.StorageID) })
	}
	return cmd
}

func (c *command) storageChanged(out client.StorageBackend, err error) error {
	if isCode(err, "connection_test_failed") {
		return fmt.Errorf("nothing was stored; --no-test stores it all the same: %w", err)
	}
	if err != nil {
		return err
	}
	for _, w := range out.Warnings {
		c.note("warning: %s", w)
	}
	return c.print(out, func(w io.Writer) { writeStorage(w, out) })
}
