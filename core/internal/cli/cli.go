// Package cli is the command line: one command a file. Execute is the whole of main.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/spf13/cobra"
)

// Version is the build's; the linker sets it.
var Version = "dev"

// Exit codes. `run` and `logs --follow` end with the exit code of the job where there is one; the codes from 121 on say
// what is not the job's, 130 that it was cancelled.
const (
	ExitOK          = 0
	ExitError       = 1   // the command failed; of run: the job failed without an exit code
	ExitUsage       = 2   // the command line is wrong
	ExitUnknown     = 121 // of run: the job's result could not be read
	ExitDetached    = 122 // of run: interrupted, or the server was out of reach for too long; the job goes on
	ExitNotAccepted = 125 // of run: nothing was submitted
	ExitCancelled   = 130 // of run: the job was cancelled
)

// Streams are where a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Env are the environment's variables as NAME=value.
	Env []string
}

// exit ends the command with a code. err is printed unless it is nil.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// usage is an error of the command line.
func usage(format string, args ...any) error {
	return &exit{code: ExitUsage, err: fmt.Errorf(format, args...)}
}

// Execute runs one command and returns the exit code.
func Execute(ctx context.Context, args []string, s Streams) int {
	s.Err = printable{s.Err}
	c := &command{Streams: s, output: "table"}
	root := c.root()
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	err := root.ExecuteContext(ctx)
	var e *exit
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &e):
		if e.err != nil {
			fmt.Fprintf(s.Err, "nagelfluh: %s\n", describe(e.err))
		}
		return e.code
	}
	fmt.Fprintf(s.Err, "nagelfluh: %s\n", describe(err))
	if c.parsed {
		return ExitError
	}
	return ExitUsage
}

// Main runs the command line of the process.
func Main() {
	os.Exit(Execute(context.Background(), os.Args[1:], Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Environ()}))
}

// command is what all commands share.
type command struct {
	Streams
	server, keyFile, project string
	output                   string
	parsed                   bool // the command line is right; what fails from here on is the command
	noting                   sync.Mutex
}

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "nagelfluh",
		Short: "Run processes on several Kubernetes clusters",
		Long: "Run processes on several Kubernetes clusters.\n\n" +
			"Commands speak to the server at NAGELFLUH_SERVER with the key in NAGELFLUH_API_KEY. The key of the first admin is in\n" +
			"admin.key in the server's data directory.",
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			c.parsed = true
			switch c.output {
			case "table", "json", "yaml":
				return nil
			}
			return usage("--output is %q: want table, json or yaml", c.output)
		},
	}
	f := root.PersistentFlags()
	f.StringVar(&c.server, "server", "", "address of the server (default NAGELFLUH_SERVER, else http://127.0.0.1:8080)")
	f.StringVar(&c.keyFile, "api-key-file", "", "file with the API key (default: the key in NAGELFLUH_API_KEY)")
	f.StringVarP(&c.project, "project", "p", "", "project, id or name (default NAGELFLUH_PROJECT, else default)")
	f.StringVarP(&c.output, "output", "o", "table", "table, json or yaml")
	root.AddCommand(
		c.serverCommand(), c.migrateCommand(), c.secretsCommand(), c.configCommand(), c.versionCommand(),
		c.runCommand(), c.dryRunCommand(), c.processesCommand(), c.describeCommand(), c.explainCommand(), c.logsCommand(), c.eventsCommand(), c.cancelCommand(),
		c.clustersCommand(), c.kubeconfigCommand(), c.pluginsCommand(), c.projectsCommand(), c.storageCommand(), c.usersCommand(), c.keysCommand(),
	)
	return root
}

// group is a command that only holds others.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("%s has no command %q; `%s --help` lists them", cmd.CommandPath(), args[0], cmd.CommandPath())
			}
			return cmd.Help()
		},
	}
	g.AddCommand(below...)
	return g
}

func (c *command) getenv(name string) string {
	for i := len(c.Env) - 1; i >= 0; i-- {
		if v, ok := cutEnv(c.Env[i], name); ok {
			return v
		}
	}
	return ""
}

func cutEnv(e, name string) (string, bool) {
	if len(e) > len(name) && e[len(name)] == '=' && e[:len(name)] == name {
		return e[len(name)+1:], true
	}
	return "", false
}

// note writes a line for people. It is safe for concurrent use.
func (c *command) note(format string, args ...any) {
	c.noting.Lock()
	defer c.noting.Unlock()
	fmt.Fprintf(c.Err, format+"\n", args...)
}
