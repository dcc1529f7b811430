// Command scale measures what a hub needs for clusters of many machines. It starts the built hub with its embedded API server, Cluster
// API's Dev infrastructure provider, whose machines are in memory, and plays the agents of all machines by the protocol of the gateway. For
// each size it starts all of it again, and it fails if a machine costs more the more machines there are.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// collectAt is how far the heap may grow, in percent, until garbage is collected: thousands of simulated machines must not take the
// processors from the hub that is measured.
const collectAt = 400

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
