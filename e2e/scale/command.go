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
	replicas, workers               int
	poolSize, most                  int
	rest, limit, boot               time.Duration
	growth                          float64
	keep, upgrades, clusterAPIOnly  bool
}

func newCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "scale", Short: "Measure what a hub needs for many machines", SilenceUsage: true, SilenceErrors: true}
	cmd.AddCommand(newMachinesCommand(), newClustersCommand(), newAgentsCommand(), newBalanceCommand(), newAPICommand())
	return cmd
}

func newMachinesCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use: "machines", Short: "Measure a hub with a cluster of many machines, made by Cluster API's in-memory provider", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.runMachines(cmd.Context()) },
	}
	o.addFlags(cmd, []int{25, 50, 100, 200}, "numbers of machines; growth is judged from three sizes on")
	o.addProviderFlags(cmd)
	cmd.Flags().BoolVar(&o.clusterAPIOnly, "cluster-api-only", false, "for comparison, workers that only Cluster API and its provider make: "+
		"of a MachineDeployment with bootstrap data that are there already, without plans and agents")
	return cmd
}

func newClustersCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use: "clusters", Short: "Measure a hub with many small clusters, made by Cluster API's in-memory provider", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.workers < 1 {
				return fmt.Errorf("--workers: %d must be at least 1", o.workers)
			}
			return o.runMachines(cmd.Context())
		},
	}
	o.addFlags(cmd, []int{5, 10, 20}, "numbers of clusters; growth is judged from three sizes on")
	o.addProviderFlags(cmd)
	cmd.Flags().IntVar(&o.workers, "workers", 9, "workers of each cluster, beside its server")
	return cmd
}

func (o *options) addProviderFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.provider, "provider", "../shared/peers/cluster-api-dev", "directory of Cluster API's Dev provider")
	f.IntVar(&o.poolSize, "pool-size", 100, "how many workers a pool has at most; more of them are spread over several pools")
	f.DurationVar(&o.boot, "boot", 0, "how long the machine of a worker takes from its bootstrap data until it registers, up to a fifth more "+
		"for some; 0 is at once, as no cloud does")
	f.BoolVar(&o.upgrades, "upgrade", true, "upgrade all machines, "+upgradeConcurrency+" of the workers at a time")
	f.Float64Var(&o.growth, "growth", 1.5, "how much more a machine may cost in the upper half of the sizes than in the lower half")
}

// unit is what sizes count.
func (o *options) unit() string {
	if o.workers > 0 {
		return "clusters"
	}
	return "machines"
}

func newAgentsCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use: "agents", Short: "Measure a hub with many agents that watch their plans, and how they come back after a restart", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.runAgents(cmd.Context()) },
	}
	o.addFlags(cmd, []int{1000, 5000, 10000}, "numbers of agents")
	cmd.Flags().IntVar(&o.replicas, "replicas", 1,
		"replicas of the hub on an API server of their own, of which one is killed; 1 is a hub with an embedded API server, which restarts")
	cmd.Flags().IntVar(&o.most, "most", 0, "fail if an agent needs more memory than this many KiB in the largest size; 0 does not judge")
	return cmd
}

// addFlags adds the flags of all commands.
func (o *options) addFlags(cmd *cobra.Command, sizes []int, what string) {
	f := cmd.Flags()
	f.StringVar(&o.hub, "hub", "bin/hub", "the hub's program")
	f.IntSliceVar(&o.sizes, "sizes", sizes, what)
	f.DurationVar(&o.rest, "rest", time.Minute, "how long to measure a hub at rest")
	f.DurationVar(&o.limit, "timeout", 20*time.Minute, "how long one size may take")
	f.StringVar(&o.report, "report", "", "write a Markdown report to this file, with plots in a directory beside it")
	f.StringVar(&o.profiles, "profiles", "", "write profiles of the hub to this directory")
	f.BoolVar(&o.keep, "keep", false, "keep the directory with logs and data of each size")
}

// prepare finds the programs, and returns the sizes in ascending order.
func (o *options) prepare(paths ...*string) ([]int, error) {
	var err error
	for _, path := range paths {
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
		if _, err := os.Stat(*path); err != nil {
			return nil, fmt.Errorf("%w (make hub builds the hub; --provider names the directory of the provider)", err)
		}
	}
	if o.profiles != "" {
		if err := os.MkdirAll(o.profiles, 0o755); err != nil {
			return nil, err
		}
	}
	for _, size := range o.sizes {
		if size < 1 {
			return nil, fmt.Errorf("--sizes: %d must be at least 1", size)
		}
	}
	sizes := slices.Clone(o.sizes)
	slices.Sort(sizes)
	return slices.Compact(sizes), nil
}

func (o *options) runMachines(ctx context.Context) error {
	if o.poolSize < 1 {
		return fmt.Errorf("--pool-size: %d must be at least 1", o.poolSize)
	}
	if o.boot < 0 {
		return fmt.Errorf("--boot: %s must not be negative", o.boot)
	}
	sizes, err := o.prepare(&o.hub, &o.provider)
	if err != nil {
		return err
	}
	clusters, workers := o.clusters(sizes[len(sizes)-1])
	if err := allowFiles(clusters*(workers+1), clusters, 1); err != nil {
		return err
	}
	runs, err := measureAll(ctx, sizes, o.unit(), o.measure, figures.Table)
	if err != nil {
		return err
	}
	return o.evaluate(runs)
}

// measureAll measures all sizes and prints a table of them, of those before if one fails: they may have taken an hour.
func measureAll[R any](ctx context.Context, sizes []int, unit string, measure func(context.Context, int) (R, error), table func([]R) string,
) ([]R, error) {
	var runs []R
	var failed error
	for _, size := range sizes {
		run, err := measure(ctx, size)
		if err != nil {
			failed = fmt.Errorf("with %d %s: %w", size, unit, err)
			break
		}
		runs = append(runs, run)
	}
	if len(runs) > 0 {
		fmt.Print("\n", table(runs))
	}
	return runs, failed
}

func (o *options) runAgents(ctx context.Context) error {
	if o.replicas < 1 {
		return fmt.Errorf("--replicas: %d must be at least 1", o.replicas)
	}
	sizes, err := o.prepare(&o.hub)
	if err != nil {
		return err
	}
	if err := allowFiles(sizes[len(sizes)-1], 0, o.replicas); err != nil {
		return err
	}
	runs, err := measureAll(ctx, sizes, "agents", o.measureAgents, figures.AgentTable)
	if err != nil {
		return err
	}
	if o.report != "" {
		if err := o.reportAgents(runs); err != nil {
			return err
		}
	}
	if last := runs[len(runs)-1]; o.most > 0 && last.ForEach() > float64(o.most<<10) {
		return fmt.Errorf("each of %d agents needs %.1f KiB of memory in the hub, and may need %d KiB", last.Agents, last.ForEach()/1024, o.most)
	}
	return nil
}

func (o *options) reportAgents(runs []figures.AgentRun) error {
	machine, err := describeMachine()
	if err != nil {
		return err
	}
	if err := figures.WriteAgents(o.report, runs, time.Now().UTC(), machine); err != nil {
		return err
	}
	fmt.Println("Report:", o.report)
	return nil
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
	report := figures.Report{
		Runs: runs, PoolSize: o.poolSize, Growth: growth, Limit: o.growth, When: time.Now().UTC(), Machine: machine,
	}
	if err := report.Write(o.report); err != nil {
		return err
	}
	fmt.Println("Report:", o.report)
	return verdict
}

// clusters are how many clusters of how many workers a size is.
func (o *options) clusters(size int) (clusters, workers int) {
	if o.workers > 0 {
		return size, o.workers
	}
	return 1, size
}

// measure measures one size, with a hub and a provider of its own: one cluster of so many workers, or so many clusters.
func (o *options) measure(ctx context.Context, size int) (run figures.Run, err error) {
	fmt.Printf("=== %d %s\n", size, o.unit())
	err = o.inDirectory(ctx, func(ctx context.Context, dir string) (err error) {
		clusters, workers := o.clusters(size)
		e := newEnvironment(o, dir, clusters, workers)
		defer func() { err = errors.Join(err, e.stop()) }()
		run, err = e.measure(ctx)
		return err
	})
	return run, err
}

// inDirectory runs one size within its time, with a directory that is kept if it fails.
func (o *options) inDirectory(ctx context.Context, run func(ctx context.Context, dir string) error) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	dir, err := os.MkdirTemp("", "drover-scale-")
	if err != nil {
		return err
	}
	err = run(ctx, dir)
	if err != nil || o.keep {
		fmt.Fprintln(os.Stderr, "Logs are in", dir)
		return err
	}
	return os.RemoveAll(dir)
}
