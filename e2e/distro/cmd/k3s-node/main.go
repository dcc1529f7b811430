// Command k3s-node is what the program k3s or rke2 unpacks and becomes: server, agent, kubectl, and each component of Kubernetes.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/grpc/grpclog"

	"github.com/drover-dev/drover/e2e/distro/internal/agent"
	"github.com/drover-dev/drover/e2e/distro/internal/args"
	"github.com/drover-dev/drover/e2e/distro/internal/cli"
	"github.com/drover-dev/drover/e2e/distro/internal/component"
	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/server"
)

func main() {
	command, given := filepath.Base(os.Args[0]), os.Args[1:]
	if slices.Contains(config.StaticPods, command) {
		command, given = "internal", append([]string{command}, given...)
	} else if command != "kubectl" {
		if len(given) == 0 {
			given = []string{"help"}
		}
		command, given = given[0], given[1:]
	}
	if command != "kubectl" && command != "internal" {
		given = args.HideSecrets(given, config.IsSecret)
	}
	if err := component.SetVersion(flavour.Version); err != nil {
		fmt.Fprintln(os.Stderr, flavour.Name("*:"), err)
		os.Exit(1)
	}
	os.Exit(run(command, given))
}

func run(command string, args []string) int {
	switch command {
	case "internal":
		if len(args) == 0 {
			return usage()
		}
		return component.Run(args[0], args[1:])
	case "kubectl":
		return component.Kubectl(args)
	case "server":
		return node(config.Server, args)
	case "agent":
		return node(config.Agent, args)
	}
	if _, ok := cli.Commands[command]; ok {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		return cli.Run(ctx, command, args)
	}
	return usage()
}

func usage() int {
	commands := slices.Sorted(maps.Keys(cli.Commands))
	fmt.Fprintf(os.Stderr, "usage: %[1]s server|agent|kubectl|ctr|%[2]s ... (a test fixture that keeps the host contract of %[1]s)\n",
		flavour.Current.Program, strings.Join(commands, "|"))
	return 1
}

func node(role config.Role, args []string) int {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, os.Stderr)) // etcd's client warns of every try
	level := &slog.LevelVar{}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	c, err := config.Load(role, config.File, args, os.Getenv)
	if err != nil {
		log.Error("The configuration has a fault", "error", err)
		return 1
	}
	if c.Debug {
		level.Set(slog.LevelDebug)
	}
	if names := c.Ignored(); len(names) > 0 {
		log.Info(flavour.Name("These keys mean nothing to this fixture of *"), "keys", names)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	do := server.Run
	switch {
	case role == config.Agent:
		do = agent.Run
	case c.ClusterReset:
		do = server.Reset
	}
	if err := do(ctx, log, c); err != nil {
		log.Error("This node ends", "error", err)
		return 1
	}
	return 0
}
