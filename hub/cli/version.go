package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is set by the build with -ldflags "-X github.com/drover-dev/drover/hub/cli.Version=v1.2.3".
var Version = "dev"

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			_, err := fmt.Fprintf(out, "hub %s %s/%s %s\n", Version, runtime.GOOS, runtime.GOARCH, runtime.Version())
			if err != nil {
				return err
			}
			for _, module := range builtIn() {
				if _, err := fmt.Fprintf(out, "  %s %s\n", module.Path, module.Version); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// builtIn are the modules whose version an operator may have to know.
func builtIn() []*debug.Module {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var out []*debug.Module
	for _, module := range info.Deps {
		switch module.Path {
		case "k8s.io/kubernetes", "sigs.k8s.io/cluster-api", "sigs.k8s.io/controller-runtime", "go.etcd.io/etcd/server/v3":
			out = append(out, module)
		}
	}
	return out
}
