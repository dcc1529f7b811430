package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/plan/dryrun"
	"github.com/drover-dev/drover/hub/plan/preview"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/server/feed"
	"github.com/drover-dev/drover/hub/server/settings"
)

func newPlan() *cobra.Command {
	return group(&cobra.Command{
		Use:   "plan",
		Short: "Inspect what the hub plans for machines",
	}, newPlanDiff())
}

// planDiff are the flags of "hub plan diff".
type planDiff struct {
	connection
	output          output
	file            string
	exitCode        bool
	systemNamespace string
	releaseData     string
}

func newPlanDiff() *cobra.Command {
	o := &planDiff{}
	cmd := &cobra.Command{
		Use:   "diff {<namespace>/<cluster> | -f <file>}",
		Short: "Preview a change on each machine",
		Long: `Show, for each machine of a cluster, which files, instructions, probes, labels and taints would be others, what that does to the machine,
in which order the machines would be changed, and what of the configuration would be left out.

With -f it is the change that applying an edited manifest would be: that of a Cluster of provisioning.cattle.io, or of an RKEControlPlane
for a cluster that was written for Cluster API. The API server checks the manifest first, as it would when it is applied. With
<namespace>/<cluster> it is what the cluster has been asked for already and its machines do not have yet.

What may be a secret is hidden behind a mark. Equal marks stand for equal values within one answer.

What happens to a machine is one of: none (nothing restarts), restart (of the distribution, which workloads do not notice), drain (a restart
that they may notice, before which the node is drained where the upgrade strategy asks for it), install, replace and remove.

Exit codes: 0; with --exit-code 2 when something would change; 1 for an error.`,
		Example: "  hub plan diff -f cluster.yaml\n  hub plan diff fleet-default/demo -o json\n  kubectl get clusters.provisioning.cattle.io " +
			"demo -o yaml | sed s/v1.35.1/v1.36.3/ | hub plan diff -f -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || (len(args) == 1) == (o.file != "") {
				return errors.New("plan diff needs either <namespace>/<cluster> or -f with a manifest")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.output.check(); err != nil {
				return err
			}
			report, err := o.report(cmd, args)
			if err != nil {
				return explain(err)
			}
			if err := o.output.print(cmd.OutOrStdout(), report, withPrintableLines(report.Write)); err != nil {
				return err
			}
			if o.exitCode && report.Changes {
				return exitChanges
			}
			return nil
		},
	}
	flags := cmd.Flags()
	o.connection.addFlags(flags)
	o.output.addFlags(flags)
	flags.StringVarP(&o.file, "file", "f", "", "edited manifest; - reads standard input")
	flags.BoolVar(&o.exitCode, "exit-code", false, "exit with code 2 if something would change")
	flags.StringVar(&o.systemNamespace, "system-namespace", settings.DefaultSystemNamespace, "the hub's --system-namespace")
	flags.StringVar(&o.releaseData, "release-data", "", "the hub's --release-data (default: the copy that the hub keeps in --data-dir)")
	return cmd
}

func (o *planDiff) report(cmd *cobra.Command, args []string) (*preview.Report, error) {
	ctx := cmd.Context()
	c, err := o.client()
	if err != nil {
		return nil, err
	}
	run, warning, err := o.options(ctx, c)
	if err != nil {
		return nil, err
	}
	var report *preview.Report
	if o.file != "" {
		var manifest []byte
		if manifest, err = readFile(o.file, cmd.InOrStdin()); err != nil {
			return nil, err
		}
		report, err = run.Edited(ctx, manifest)
	} else {
		var key client.ObjectKey
		if key, err = clusterKey(args[0]); err != nil {
			return nil, err
		}
		report, err = run.Pending(ctx, key)
	}
	if err == nil && warning != "" {
		report.Warnings = append(report.Warnings, warning)
	}
	return report, err
}

// options are what the hub works with. A warning says where they may differ.
func (o *planDiff) options(ctx context.Context, c client.Client) (run dryrun.Options, warning string, err error) {
	run = dryrun.Options{Client: c, Releases: &release.Catalog{}}
	var released bool
	if run.Settings, released, err = readSettings(ctx, c, o.systemNamespace); err != nil {
		return run, "", err
	}
	location := o.releaseData
	if location == "" && released && o.kubeconfig == "" {
		kept := filepath.Join(o.dataDir, releaseDataCache)
		if _, err := os.Stat(kept); err == nil {
			location = kept
		}
	}
	switch {
	case location != "":
		if run.Releases, err = feed.Read(ctx, location); err != nil {
			return run, "", fmt.Errorf("--release-data: %w", err)
		}
	case released:
		warning = "the hub uses release data that this command does not have: set --release-data to the same file or URL"
	}
	if o.releaseData != "" && !released {
		warning = "the hub uses no release data, and may plan something else than this answer, which is with that of --release-data"
	}
	return run, warning, nil
}

// readFile reads a file, or the standard input for "-".
func readFile(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		raw, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("reading standard input: %w", err)
		}
		return raw, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	return raw, nil
}
