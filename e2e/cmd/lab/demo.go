package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
)

// demoCluster and demoHost are what the demo makes.
var demoCluster = client.ObjectKey{Namespace: "fleet-default", Name: "demo"}

const demoHost = "node1"

// readyValue remembers in the ledger that a demo came to its end, and with which binaries.
const readyValue = "demo-ready"

func newDemoCommand(f *flags) *cobra.Command {
	fresh, runtime := false, lab.K3s.Runtime
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Make a Kubernetes cluster on a real host, with everything that it needs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := f.open()
			if err != nil {
				return err
			}
			i := slices.IndexFunc(lab.Distributions, func(d lab.Distribution) bool { return d.Runtime == runtime })
			if i < 0 {
				return fmt.Errorf("--distribution: must be k3s or rke2, got %q", runtime)
			}
			d := &demo{Lab: l, steps: newSteps(os.Stdout), distribution: lab.Distributions[i]}
			l.OnProgress(d.steps.progress)
			err = d.run(cmd.Context(), fresh)
			if err != nil && cmd.Context().Err() == nil && d.failed && l.HasLogs() {
				err = fmt.Errorf("%w%s", err, d.collect())
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&fresh, "fresh", false, "start over even if the demo runs already")
	cmd.Flags().StringVar(&runtime, "distribution", runtime, "what the cluster runs: k3s or rke2")
	return cmd
}

// demo is one run of the demo.
type demo struct {
	*lab.Lab
	distribution lab.Distribution
	steps        *steps
	times        times
	failed       bool // after the lab began, so that there are logs to keep
}

func (d *demo) run(ctx context.Context, fresh bool) error {
	if err := d.steps.do("Tools and binaries", func() (string, error) { return "", d.Check(ctx) }); err != nil {
		return err
	}
	unlock, err := d.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	build, err := d.BuildID()
	if err != nil {
		return err
	}
	build += "-" + d.distribution.Runtime
	if d.Exists() {
		if !fresh && d.healthy() && d.State().Values[readyValue] == build {
			fmt.Printf("\nThe demo runs already, since %s. (bin/lab demo --fresh starts over.)\n", d.State().Created.Format(time.DateTime))
			return d.summary(ctx)
		}
		if err := d.steps.do("Removing the lab of an earlier run", func() (string, error) { return "", d.Down(ctx) }); err != nil {
			return err
		}
	}
	d.failed = true
	if err := d.machinery(ctx); err != nil {
		return err
	}
	if err := d.cluster(ctx); err != nil {
		return err
	}
	d.failed = false
	if err := d.SetValue(readyValue, build); err != nil {
		return err
	}
	return d.summary(ctx)
}

// healthy reports whether everything that the demo started still runs.
func (d *demo) healthy() bool {
	h, err := d.Host(demoHost)
	return err == nil && h.Up() && d.ServicesRun()
}

// machinery puts up what the cluster is made with: registry, hub, host.
func (d *demo) machinery(ctx context.Context) error {
	stages := append(d.Stages(d.distribution), lab.Stage{Title: "Host " + demoHost, Run: func(ctx context.Context) (string, error) {
		h, err := d.AddHost(ctx, demoHost)
		if err != nil {
			return "", err
		}
		return "Debian with systemd at " + h.IP().String(), nil
	}})
	for _, stage := range stages {
		began := time.Now()
		if err := d.steps.do(stage.Title, func() (string, error) { return stage.Run(ctx) }); err != nil {
			return err
		}
		if stage.Title == lab.HubStage {
			d.times.hubReady = time.Since(began)
		}
	}
	return nil
}

// cluster makes the cluster as a user does, and measures.
func (d *demo) cluster(ctx context.Context) error {
	hub, err := d.HubClient()
	if err != nil {
		return err
	}
	host, err := d.Host(demoHost)
	if err != nil {
		return err
	}
	command := ""
	err = d.steps.do("Cluster "+demoCluster.String(), func() (string, error) {
		if err := d.ApplyClusterVersion(ctx, hub, demoCluster, d.distribution.Version); err != nil {
			return "", err
		}
		command, err = d.NodeCommand(ctx, demoCluster, lab.AllRoles...)
		return "applied, and it has a registration command", err
	})
	if err != nil {
		return err
	}
	began := time.Now()
	delivered := make(chan error, 1)
	go func() {
		quiet := lab.Silent(ctx)
		machine, err := d.WaitMachine(quiet, hub, demoCluster)
		if err == nil {
			err = d.WaitPlan(quiet, hub, machine)
		}
		d.times.planDelivered = time.Since(began)
		delivered <- err
	}()
	err = d.steps.do("Registration command on "+demoHost, func() (string, error) {
		return "the agent runs", d.Register(ctx, host, command)
	})
	if err != nil {
		return err
	}
	if err := d.steps.do("Plan", func() (string, error) { return "delivered", <-delivered }); err != nil {
		return err
	}
	err = d.steps.do("Node", func() (string, error) {
		err := d.WaitNodeReady(ctx, hub, demoCluster, 10*time.Minute)
		d.times.nodeReady = time.Since(began) - d.times.planDelivered
		return "Ready, seen with the kubeconfig Secret", err
	})
	if err != nil {
		return err
	}
	err = d.steps.do("Cluster", func() (string, error) {
		return "Ready", d.WaitClusterReady(ctx, hub, demoCluster, 5*time.Minute)
	})
	if err != nil {
		return err
	}
	return d.steps.do("Pod from an image of the installer image", func() (string, error) {
		answer, err := d.RunHello(ctx, hub, demoCluster, 5*time.Minute)
		d.times.total = time.Since(d.steps.start)
		return fmt.Sprintf("runs and answers %q", answer), err
	})
}

// collect saves the logs of a failed run and says where.
func (d *demo) collect() string {
	cache, err := hosts.CacheDir()
	if err != nil {
		return ""
	}
	dir := filepath.Join(cache, "logs", d.Name+"-"+time.Now().Format("20060102-150405"))
	if err := d.Collect(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Sprintf("\nThe logs that could be saved are in %s (%v).", dir, err)
	}
	return "\nThe logs are in " + dir + "; lab down removes the lab."
}
