package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/hub/nodedriver/jobs"
)

// newNodeDriver has the commands of the Jobs that run node drivers. They are for no user.
func newNodeDriver() *cobra.Command {
	return group(&cobra.Command{Use: "node-driver", Short: "Run node drivers in the Jobs of the hub", Hidden: true}, newNodeDriverRun())
}

// terminationLog is where Kubernetes reads the last message of a container.
const terminationLog = "/dev/termination-log"

func newNodeDriverRun() *cobra.Command {
	opts := jobs.RunOptions{}
	var namespace string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Carry out an order of the hub in the Pod of a Job",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.Order == "" || opts.Result == "" || namespace == "" {
				return errors.New("--order, --namespace and --result are required: the hub sets them in its Jobs")
			}
			config, err := rest.InClusterConfig()
			if err != nil {
				return fmt.Errorf("using the cluster that the Job runs in: %w", err)
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return fmt.Errorf("making a client: %w", err)
			}
			if opts.Pod, err = os.Hostname(); err != nil {
				return fmt.Errorf("reading the name of the Pod: %w", err)
			}
			opts.Secrets = client.CoreV1().Secrets(namespace)
			err = jobs.Run(cmd.Context(), opts)
			if err != nil {
				// Without the file, Kubernetes takes the last lines of the output.
				_ = os.WriteFile(terminationLog, []byte(oneLine(err)), 0o600)
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Order, "order", "", "file with the order")
	flags.StringVar(&namespace, "namespace", "", "namespace of the Secret for the result")
	flags.StringVar(&opts.Result, "result", "", "name of the Secret for the result")
	flags.StringVar(&opts.ProgramDir, "node-driver-dir", "", "directory with the programs of builtin drivers")
	return cmd
}
