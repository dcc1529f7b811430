// Package agent runs what every node has: containerd, kubelet, kube-proxy and the pod network.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/e2e/distro/internal/balance"
	"github.com/drover-dev/drover/e2e/distro/internal/child"
	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/kubeconfig"
	"github.com/drover-dev/drover/e2e/distro/internal/layout"
	"github.com/drover-dev/drover/e2e/distro/internal/notify"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// Source is where an agent gets what its cluster decides: a server over the network, or the server it is part of.
type Source interface {
	Settings(context.Context) (supervisor.Settings, error)
	Sign(context.Context, supervisor.SignRequest) (supervisor.SignResponse, error)
	APIServers(context.Context) ([]string, error)
}

// Options are what Start needs.
type Options struct {
	Config config.Config
	Log    *slog.Logger
	Set    *child.Set
	Source Source
	// LocalAPI is true if the Kubernetes API runs on this node; otherwise the agent balances over those of other nodes.
	LocalAPI bool
}

// agent is one node while it runs.
type agent struct {
	Options
	c        config.Config
	data     layout.Data
	ips      []string
	settings supervisor.Settings
	url      string
	kubelet  kubernetes.Interface
	calico   sync.Once
}

// Run runs a node without a server until ctx ends or one of its components fails.
func Run(ctx context.Context, log *slog.Logger, c config.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	set := child.NewSet(log)
	defer set.Stop()
	failed := make(chan error, 1)
	go func() {
		source, err := dial(ctx, log, c)
		if err == nil {
			err = Start(ctx, Options{Config: c, Log: log, Set: set, Source: source})
		}
		if err == nil {
			log.Info("This agent is up", "node", c.NodeName)
			err = notify.Ready()
		}
		if err != nil {
			failed <- err
		}
	}()
	select {
	case <-ctx.Done():
		log.Info("Stopping")
		return nil
	case err := <-failed:
		return err
	case err := <-set.Failed():
		return err
	}
}

func newAgent(o Options) *agent {
	return &agent{Options: o, c: o.Config, data: layout.Data(o.Config.DataDir)}
}

// phase is a part of bringing a node up.
type phase struct {
	name string
	run  func(context.Context) error
}

func run(ctx context.Context, phases ...phase) error {
	for _, p := range phases {
		if err := p.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// Start brings a node up and returns once its Node object is there. What it started runs until ctx ends.
func Start(ctx context.Context, o Options) error {
	a := newAgent(o)
	return run(ctx,
		phase{"preparing this machine", a.prepare},
		phase{"asking for the cluster's settings", a.askSettings},
		phase{"finding the Kubernetes API", a.findAPI},
		phase{"getting certificates", a.getCertificates},
		phase{"starting containerd", a.startContainerd},
		phase{"importing images", a.importImages},
		phase{"starting kubelet", a.startKubelet},
		phase{"waiting for the Node", a.awaitNode},
		phase{"starting kube-proxy", a.startProxy},
	)
}

func dial(ctx context.Context, log *slog.Logger, c config.Config) (Source, error) {
	for {
		source, err := supervisor.Dial(ctx, c.Server, c.Token, nil)
		if err == nil {
			_, err = source.Settings(ctx)
		}
		if err == nil {
			return source, nil
		}
		log.Info("Waiting for the server", "server", c.Server, "error", err)
		if err := sleep(ctx, 2*time.Second); err != nil {
			return nil, err
		}
	}
}

func (a *agent) askSettings(ctx context.Context) error {
	var err error
	a.settings, err = a.Source.Settings(ctx)
	return err
}

// findAPI settles where kubelet and kube-proxy talk to.
func (a *agent) findAPI(ctx context.Context) error {
	if a.LocalAPI {
		a.url = "https://127.0.0.1:" + strconv.Itoa(a.c.HTTPSPort)
		return nil
	}
	var servers []string
	for n := 0; len(servers) == 0; n++ {
		var err error
		if servers, err = a.Source.APIServers(ctx); err != nil || len(servers) == 0 {
			if n%10 == 0 {
				a.Log.Info("Waiting for a server that runs the Kubernetes API", "error", err)
			}
			if err := sleep(ctx, time.Second); err != nil {
				return err
			}
		}
	}
	return a.balanceAPI(ctx, 10*time.Second, servers, a.currentServers)
}

// balanceAPI makes the API servers answer at an address of this machine, and asks for their addresses every so often.
func (a *agent) balanceAPI(ctx context.Context, every time.Duration, servers []string,
	list func(context.Context) ([]string, error)) error {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(a.c.LBServerPort))
	b, err := balance.Listen(ctx, a.Log, address, servers)
	if err != nil {
		return err
	}
	a.url = "https://" + address
	go b.Follow(ctx, every, list)
	return nil
}

// currentServers asks the Kubernetes API where it is, and the server this node joined at if it does not say.
func (a *agent) currentServers(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if k, err := kubeconfig.Client(a.controllerKubeconfig()); err == nil {
		if servers, err := endpoints(ctx, k); err == nil && len(servers) > 0 {
			return servers, nil
		}
	}
	return a.Source.APIServers(ctx)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
