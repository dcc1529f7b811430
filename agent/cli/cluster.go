package cli

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/agent/clusteragent"
)

// The environment variables of the cluster agent, which its manifest sets.
const (
	envServer     = "CATTLE_SERVER"
	envCAChecksum = "CATTLE_CA_CHECKSUM"
	envCluster    = "CATTLE_CLUSTER"
)

// namespaceFile contains the namespace of a pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

const clusterLong = `Run the cluster agent: connect the cluster to its hub and forward requests of the hub's users to the Kubernetes API.
The agent connects only to the hub and to that API. The manifest that the hub renders for the cluster starts it.

--credentials is the directory of the mounted registration Secret with the files url, token and ca.crt. The agent exchanges the token once
for its own credential and stores that in the Secret cattle-cluster-agent-identity.`

const clusterExample = `  # outside of the cluster, with a kubeconfig
  system-agent cluster --kubeconfig ~/.kube/config --credentials ./registration --health-address ""`

func newCluster() *cobra.Command {
	o := clusteragent.Options{Version: Version, Cluster: os.Getenv(envCluster)}
	var kubeconfig string
	cmd := &cobra.Command{
		Use:     "cluster",
		Short:   "Run the cluster agent",
		Long:    clusterLong,
		Example: clusterExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = newClusterLog(cmd.OutOrStdout())
			var err error
			if o.Kubernetes, err = clusterConfig(kubeconfig); err != nil {
				return err
			}
			if o.Namespace == "" {
				o.Namespace = podNamespace()
			}
			return clusteragent.Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: service account of the pod)")
	flags.StringVar(&o.Namespace, "namespace", "",
		"namespace of the Secret with the agent's credential (default: the namespace of the pod, or cattle-system)")
	flags.StringVar(&o.Credentials, "credentials", "/cattle-credentials", "directory of the mounted registration Secret")
	flags.StringVar(&o.Server, "server", os.Getenv(envServer), "URL of the hub (also $"+envServer+"; default: the file url in --credentials)")
	flags.StringVar(&o.CAChecksum, "ca-checksum", os.Getenv(envCAChecksum),
		"SHA-256 of <server>/cacerts, if --credentials has no ca.crt (also $"+envCAChecksum+")")
	flags.StringArrayVar(&o.AllowGroups, "allow-group", nil,
		"group that the hub may impersonate in addition: only system:masters, which may do everything")
	flags.StringVar(&o.HealthAddress, "health-address", ":9440", "listen address of /healthz, /readyz and /metrics; empty disables them")
	cmd.AddCommand(newAuthWebhook())
	return cmd
}

// newClusterLog is newLog for programs in a cluster, for which an unknown level is info: it comes from the variables of the cluster, and
// without its agent the cluster could not be reached.
func newClusterLog(w io.Writer) *slog.Logger {
	log, err := newLog(w, os.Getenv(envLogLevel))
	if err != nil {
		log = slog.New(slog.NewTextHandler(w, nil))
		log.Warn("The log level is info", "error", err)
	}
	return log
}

// clusterConfig returns the client configuration of a kubeconfig, or that of the pod's service account.
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
			return nil, fmt.Errorf("not running in a pod (%w): set --kubeconfig", err)
		}
		// The proxy of the environment is for the hub; the Kubernetes API is inside the cluster.
		cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	cfg.UserAgent = "drover-cluster-agent/" + Version
	return cfg, nil
}

func podNamespace() string {
	raw, err := os.ReadFile(namespaceFile)
	if err != nil {
		return "cattle-system"
	}
	return strings.TrimSpace(string(raw))
}
