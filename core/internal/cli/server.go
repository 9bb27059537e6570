package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/internal/app"
	"github.com/nagelfluh/nagelfluh/core/internal/config"
)

// settings are the flags of commands that read the server's configuration.
type settings struct {
	file   string
	cmd    *cobra.Command
	values map[string]any // by key: *string, *bool or *[]string
	names  map[string]string
}

func addSettings(cmd *cobra.Command) *settings {
	s := &settings{cmd: cmd, values: map[string]any{}, names: map[string]string{}}
	f := cmd.Flags()
	f.StringVar(&s.file, "config", "", "YAML file with settings (default NAGELFLUH_CONFIG, else none)")
	for _, flag := range config.Flags() {
		s.names[flag.Key] = flag.Name
		switch flag.Kind {
		case "":
			v := new(bool)
			f.BoolVar(v, flag.Name, flag.Default == "true", flag.Doc)
			s.values[flag.Key] = v
		case "text, repeatable":
			v := new([]string)
			f.StringArrayVar(v, flag.Name, nil, flag.Doc)
			s.values[flag.Key] = v
		default:
			v := new(string)
			f.StringVar(v, flag.Name, flag.Default, flag.Doc)
			s.values[flag.Key] = v
		}
	}
	return s
}

func (s *settings) load(env []string) (*config.Config, error) {
	given := map[string][]string{}
	for key, name := range s.names {
		if !s.cmd.Flags().Changed(name) {
			continue
		}
		switch v := s.values[key].(type) {
		case *bool:
			given[key] = []string{fmt.Sprint(*v)}
		case *[]string:
			given[key] = *v
		case *string:
			given[key] = []string{*v}
		}
	}
	cfg, err := config.Load(config.Input{File: s.file, Env: env, Flags: given})
	if err != nil {
		return nil, &exit{code: ExitUsage, err: fmt.Errorf("the configuration is wrong:\n%w", err)}
	}
	return cfg, nil
}

// serverGC is how much the heap of a server may grow between collections, in percent of what lives: less memory for a
// little more work. The operator's GOGC counts instead.
const serverGC = 50

func (c *command) serverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "server", Short: "Run the server", Args: cobra.NoArgs,
		Long: "Run the server until a signal. The first signal drains: nothing new is accepted, requests under way are finished, streams\n" +
			"end, and jobs go on at their clusters. The second ends at once; nothing is lost by that either.",
	}
	s := addSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := s.load(c.Env)
		if err != nil {
			return err
		}
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(serverGC)
		}
		ctx, stop := untilSignal(cmd.Context())
		defer stop()
		return app.Run(ctx, app.Options{
			Config: cfg, Version: Version, Say: c.note,
			Logger: hclog.New(&hclog.LoggerOptions{
				Name: "nagelfluh", Level: hclog.LevelFromString(cfg.LogLevel), JSONFormat: cfg.LogFormat == "json", Output: c.Err,
			}),
		})
	}
	return cmd
}

// untilSignal returns a context that the first signal ends; the second ends the process.
func untilSignal(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case <-signals:
			cancel()
		case <-done:
			return
		}
		select {
		case <-signals:
			os.Exit(ExitError)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}
