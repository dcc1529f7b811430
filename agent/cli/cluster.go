package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/agent/clusteragent"
)

// What the cluster-agent reads of its environment, as its manifest sets it.
const (
	envServer     = "CATTLE_SERVER"
	envCAChecksum = "CATTLE_CA_CHECKSUM"
	envCluster    = "CATTLE_CLUSTER"
)

// podNamespace is where a pod finds the namespace that it is in.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

const clusterLong = `Connects the cluster that it runs in to its hub, and forwards what users ask of the cluster through the hub to the cluster's Kubernetes
API. It opens no connection but to the hub and to that API. It is started by the manifest that the hub makes for the cluster.

The registration Secret of the manifest is a folder with the files url, token and ca.crt. The agent exchanges the token for a credential
of its own once, and keeps that in the Secret cattle-cluster-agent-identity.`

const clusterExample = `  # by hand, for a cluster that a kubeconfig leads to
  system-agent cluster --kubeconfig ~/.kube/config --credentials ./registration --health-address ""`

func newCluster() *cobra.Command {
	o := clusteragent.Options{Server: os.Getenv(envServer), CAChecksum: os.Getenv(envCAChecksum), Cluster: os.Getenv(envCluster), Version: Version}
	var kubeconfig string
	cmd := &cobra.Command{
		Use:     "cluster",
		Short:   "Connect the cluster that it runs in to its hub, until stopped",
		Long:    clusterLong,
		Example: clusterExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Log, err = newLog(cmd.OutOrStdout(), os.Getenv(envLogLevel)); err != nil {
				return err
			}
			if o.Kubernetes, err = clusterConfig(kubeconfig); err != nil {
				return err
			}
			if o.Namespace == "" {
				o.Namespace = ownNamespace()
			}
			return clusteragent.Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: the service account of the pod)")
	flags.StringVar(&o.Namespace, "namespace", "", "namespace in which the agent keeps its credential (default: that of the pod, or cattle-system)")
	flags.StringVar(&o.Credentials, "credentials", "/cattle-credentials", "folder of the registration Secret")
	flags.StringVar(&o.Server, "server", o.Server, "URL of the hub (also "+envServer+"; default: the file url of the folder)")
	flags.StringVar(&o.CAChecksum, "ca-checksum", o.CAChecksum, "SHA-256 of <server>/cacerts, for a folder without ca.crt (also "+envCAChecksum+")")
	flags.StringArrayVar(&o.AllowGroups, "allow-group", nil, "system:masters lets the hub do everything in the cluster (default: only what its users may)")
	flags.StringVar(&o.HealthAddress, "health-address", ":9440", "where /healthz, /readyz and /metrics are answered; empty for nowhere")
	cmd.AddCommand(newAuthWebhook())
	return cmd
}

// clusterConfig leads to the Kubernetes API: by a kubeconfig, or by the service account of the pod.
func clusterConfig(kubeconfig string) (*rest.Config, error) {
	var cfg *rest.Config
	var err error
	if kubeconfig != "" {
		cfg, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
	} else {
		cfg, err = rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("this is no pod of a cluster (%w): use --kubeconfig", err)
		}
		// A proxy of the environment leads out of the cluster, to the hub; the API is within.
		cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	cfg.UserAgent = "drover-cluster-agent/" + Version
	return cfg, nil
}

func ownNamespace() string {
	raw, err := os.ReadFile(podNamespace)
	if err != nil {
		return "cattle-system"
	}
	return strings.TrimSpace(string(raw))
}
