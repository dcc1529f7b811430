package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/e2e/balancer"
	"github.com/drover-dev/drover/e2e/scale/programs"
	"github.com/drover-dev/drover/hub/testenv/loopback"
)

// loadBalancer is a load balancer before the replicas' gateways, in a process of its own: it has two open files for each agent, which are
// too many beside those of the agents themselves.
type loadBalancer struct {
	*programs.Program
	status string
	balance
}

// balance is what a load balancer says of itself.
type balance struct {
	// Address is where it listens, Connections the number of open connections to each replica.
	Address     string
	Connections []int64
}

// startBalancer starts a load balancer before replicas and waits until it listens.
func startBalancer(ctx context.Context, dir string, hubs []*hub) (*loadBalancer, error) {
	address, err := loopback.FreeAddress("127.0.0.1")
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"balance", "--status", address}
	for _, h := range hubs {
		args = append(args, h.gateway)
	}
	b := &loadBalancer{status: "http://" + address}
	if b.Program, err = programs.Start(dir, "balancer", nil, self, args...); err != nil {
		return nil, err
	}
	return b, b.Await(ctx, "the load balancer", func() error { return b.read(ctx) })
}

// read reads what the load balancer says of itself.
func (b *loadBalancer) read(ctx context.Context) error {
	raw, err := get(ctx, http.DefaultClient, b.status)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &b.balance); err != nil {
		return fmt.Errorf("decoding the status of the load balancer: %w", err)
	}
	return nil
}

// newBalanceCommand is the program of the load balancer.
func newBalanceCommand() *cobra.Command {
	var status string
	cmd := &cobra.Command{
		Use: "balance <gateway>...", Short: "Pass connections on to gateways of replicas", Args: cobra.MinimumNArgs(1), Hidden: true,
		RunE: func(cmd *cobra.Command, gateways []string) error {
			var backends []*balancer.Backend
			for _, gateway := range gateways {
				backends = append(backends, &balancer.Backend{Address: gateway, Health: "https://" + gateway + "/healthz"})
			}
			b, err := balancer.Start(cmd.Context(), backends...)
			if err != nil {
				return err
			}
			server := &http.Server{Addr: status, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				now := balance{Address: b.Addr().String()}
				for _, backend := range backends {
					now.Connections = append(now.Connections, backend.Connections())
				}
				_ = json.NewEncoder(w).Encode(now) // the reader has gone
			})}
			defer context.AfterFunc(cmd.Context(), func() { _ = server.Close() })()
			if err := server.ListenAndServe(); cmd.Context().Err() == nil {
				return err
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&status, "status", "", "address at which it says how many connections each gateway has")
	return cmd
}
