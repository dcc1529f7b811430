// Command lab runs the demo and looks after labs: hosts, registry and hub on this machine, made by e2e/lab.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRootCommand().ExecuteContext(ctx)
	interrupted := ctx.Err() != nil
	stop()
	if err == nil {
		return
	}
	if exit := (&exec.ExitError{}); errors.As(err, &exit) && exit.Exited() {
		os.Exit(exit.ExitCode()) // kubectl has said why
	}
	if interrupted {
		fmt.Fprintln(os.Stderr, "Interrupted. lab down removes what was made.")
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "Error:", err)
	os.Exit(1)
}
