package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/e2e/hosts"
)

func newHostCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{Use: "host", Short: "Add hosts to the lab, turn them off and on"}
	cmd.AddCommand(
		&cobra.Command{
			Use:   "add <name>",
			Short: "Make a host and boot it, with the lab's network if there is none yet",
			Args:  cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				l, err := f.open()
				if err != nil {
					return err
				}
				s := newSteps(os.Stdout)
				l.OnProgress(s.progress)
				if err := hosts.EnsureTools(cmd.Context(), nil, s.progress); err != nil {
					return err
				}
				unlock, err := l.Lock()
				if err != nil {
					return err
				}
				defer unlock()
				return s.do("Host "+args[0], func() (string, error) {
					if err := l.Up(cmd.Context()); err != nil {
						return "", err
					}
					h, err := l.AddHost(cmd.Context(), args[0])
					if err != nil {
						return "", err
					}
					return "on, at " + h.IP().String(), nil
				})
			},
		},
		onHost(f, "remove", "Turn a host off and forget it", func(_ context.Context, h *hosts.Host) error { return h.Remove() }),
		onHost(f, "kill", "Turn a host off as a power cut does", func(_ context.Context, h *hosts.Host) error { return h.Kill() }),
		onHost(f, "stop", "Shut a host down", func(ctx context.Context, h *hosts.Host) error { return h.Poweroff(ctx) }),
		onHost(f, "start", "Turn a host on", func(ctx context.Context, h *hosts.Host) error { return h.Boot(ctx) }),
		onHost(f, "close", "Drop what comes in and was not asked for, as an address translation does",
			func(ctx context.Context, h *hosts.Host) error { return h.CloseIncoming(ctx) }),
		onHost(f, "open", "Let connections in again", func(ctx context.Context, h *hosts.Host) error { return h.OpenIncoming(ctx) }),
	)
	return cmd
}

func onHost(f *flags, name, short string, run func(context.Context, *hosts.Host) error) *cobra.Command {
	return &cobra.Command{
		Use:   name + " <name>",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := f.open()
			if err != nil {
				return err
			}
			unlock, err := l.Lock()
			if err != nil {
				return err
			}
			defer unlock()
			h, err := l.Host(args[0])
			if err != nil {
				return err
			}
			if err := run(cmd.Context(), h); err != nil {
				return err
			}
			fmt.Println("done")
			return nil
		},
	}
}
