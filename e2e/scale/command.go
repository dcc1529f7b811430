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

	"github.com/drover-dev/drover/e2e/scale/figures"
)

// options are the flags.
type options struct {
	hub, provider, report, profiles string
	sizes                           []int
	rest, limit                     time.Duration
	growth                          float64
	keep                            bool
}

func newCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use: "scale", Short: "Measure the hub with clusters of many machines",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.hub, "hub", "bin/hub", "the hub's program")
	f.StringVar(&o.provider, "provider", "../shared/peers/cluster-api-dev", "directory of Cluster API's Dev provider")
	f.IntSliceVar(&o.sizes, "sizes", []int{25, 50, 100, 200}, "numbers of machines; growth is judged from three sizes on")
	f.DurationVar(&o.rest, "rest", time.Minute, "how long to measure a hub at rest")
	f.DurationVar(&o.limit, "timeout", 20*time.Minute, "how long one size may take")
	f.Float64Var(&o.growth, "growth", 1.5, "how much more a machine may cost in the upper half of the sizes than in the lower half")
	f.StringVar(&o.report, "report", "", "write a Markdown report to this file, with plots in a directory beside it")
	f.StringVar(&o.profiles, "profiles", "", "write profiles of the hub to this directory")
	f.BoolVar(&o.keep, "keep", false, "keep the directory with logs and data of each size")
	return cmd
}

func (o *options) run(ctx context.Context) error {
	var err error
	for _, path := range []*string{&o.hub, &o.provider} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
		if _, err := os.Stat(*path); err != nil {
			return fmt.Errorf("%w (make hub builds the hub; --provider names the directory of the provider)", err)
		}
	}
	if o.profiles != "" {
		if err := os.MkdirAll(o.profiles, 0o755); err != nil {
			return err
		}
	}
	sizes := slices.Clone(o.sizes)
	slices.Sort(sizes)
	var runs []figures.Run
	for _, size := range slices.Compact(sizes) {
		run, err := o.measure(ctx, size)
		if err != nil {
			return fmt.Errorf("with %d machines: %w", size, err)
		}
		runs = append(runs, run)
	}
	fmt.Print("\n", figures.Table(runs))
	return o.evaluate(runs)
}

// evaluate prints how the figures grow, and writes the report.
func (o *options) evaluate(runs []figures.Run) error {
	var growth []figures.Growth
	var verdict error
	if len(runs) >= figures.MinSizes {
		growth, verdict = figures.Evaluate(runs, o.growth)
		fmt.Print("\n", figures.GrowthTable(growth, o.growth))
	} else {
		fmt.Printf("\nGrowth is not judged: that needs %d sizes.\n", figures.MinSizes)
	}
	if o.report == "" {
		return verdict
	}
	machine, err := describeMachine()
	if err != nil {
		return err
	}
	report := figures.Report{Runs: runs, Growth: growth, Limit: o.growth, When: time.Now().UTC(), Machine: machine}
	if err := report.Write(o.report); err != nil {
		return err
	}
	fmt.Println("Report:", o.report)
	return verdict
}

// measure measures one size, with a hub and a provider of its own.
func (o *options) measure(ctx context.Context, size int) (run figures.Run, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	dir, err := os.MkdirTemp("", "drover-scale-")
	if err != nil {
		return run, err
	}
	defer func() {
		if err != nil || o.keep {
			fmt.Fprintln(os.Stderr, "Logs are in", dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	fmt.Printf("=== %d machines\n", size)
	e := &environment{options: o, dir: dir, size: size}
	defer func() { err = errors.Join(err, e.stop()) }()
	return e.measure(ctx)
}
