package cli

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/hub/api/provider"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/server"
	"github.com/drover-dev/drover/hub/server/embedded"
	"github.com/drover-dev/drover/hub/server/settings"
)

// releaseDataCache is the file of the data directory that keeps release data.
const releaseDataCache = "release-data.json"

// Values of --capi.
const (
	capiEmbedded = "embedded"
	capiExternal = "external"
)

// noAudit is the value of --audit-log-path that turns the audit log off.
const noAudit = "none"

// serveOptions are the flags of "hub serve".
type serveOptions struct {
	log        logOptions
	kubeconfig string
	capi       string
	providers  []string
	// hub and api are what the flags set of the options of the hub and of its embedded API server.
	hub server.Options
	api embedded.Options
	// apiPort is the flag of api.Port, whose default does not show whether somebody has set it.
	apiPort *pflag.Flag
	// nodeDriverScheduling is a jobs.Scheduling as JSON.
	nodeDriverScheduling string
	// addresses are those of this machine, with their networks.
	addresses func() ([]net.Addr, error)
}

func (o *serveOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.api.DataDir, "data-dir", defaultDataDir(), "data directory of the embedded API server")
	flags.IntVar(&o.api.Port, "api-port", embedded.DefaultPort, "port of the embedded API server on 127.0.0.1")
	o.apiPort = flags.Lookup("api-port")
	flags.StringVar(&o.api.EncryptionKeyDir, "encryption-key-dir", "",
		"directory of the keys with which the embedded API server encrypts Secrets (default <data-dir>/encryption)")
	flags.StringVar(&o.api.Audit.Path, "api-audit-log-path", "",
		"audit log file of the embedded API server; - is standard output, none disables it (default <data-dir>/audit/api.log)")
	flags.StringVar(&o.api.Audit.PolicyFile, "api-audit-policy-file", "",
		"audit.k8s.io/v1 Policy for that log (default: metadata of writes and of reads of Secrets)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the management cluster; no embedded API server is started")

	flags.StringVar(&o.hub.GatewayListen, "listen", ":8443", "address of the gateway")
	flags.StringVar(&o.hub.Settings.ServerURL, "server-url", "",
		"https URL of the gateway for machines and users (default https://<first IPv4 address of this machine>:<port of --listen>)")
	flags.StringVar(&o.hub.AssetsDir, "assets-dir", "",
		"directory with the system-agent binaries that machines download (default: the directory of this program)")
	flags.StringVar(&o.hub.NodeDriverDir, "node-driver-dir", "",
		"directory of programs of node drivers: builtin ones (docker-machine-driver-<name>, rancher-machine) and downloaded ones; with "+
			"--node-driver-image, the directory of the builtin ones in that image "+
			"(default <data-dir>/node-drivers with the embedded API server, otherwise none)")
	flags.StringVar(&o.hub.NodeDriverImage, "node-driver-image", "",
		"image of the hub, for Jobs that run node drivers in --system-namespace; without it they run in processes of the hub")
	flags.StringSliceVar(&o.hub.NodeDriverPullSecrets, "node-driver-image-pull-secrets", nil,
		"names of Secrets (kubernetes.io/dockerconfigjson) in --system-namespace with credentials for the registry of --node-driver-image")
	flags.StringVar(&o.nodeDriverScheduling, "node-driver-scheduling", "",
		"where the Pods of these Jobs run: JSON with the fields nodeSelector, tolerations and priorityClassName of a Pod")
	flags.StringVar(&o.hub.WebhookListen, "webhook-listen", "",
		"address of the webhooks (default 127.0.0.1:9443 with the embedded API server, otherwise :9443)")
	flags.StringVar(&o.hub.WebhookURL, "webhook-url", "",
		"https URL of the webhooks for the API server (default: the loopback address with the embedded API server, the host of --server-url "+
			"with --kubeconfig, the Services "+server.AdmissionService+" and "+server.WebhookService+" in a cluster)")
	flags.StringVar(&o.hub.OwnerClusterRole, "owner-cluster-role", "",
		"ClusterRole of the hub's installation; when it is deleted, the webhook configurations of the hub are deleted, too")
	flags.StringVar(&o.hub.HealthListen, "health-listen", "127.0.0.1:9440", "address of /healthz and /readyz; 0 disables them")
	flags.StringVar(&o.hub.MetricsListen, "metrics-listen", "127.0.0.1:9441", "address of /metrics; 0 disables it")
	flags.StringVar(&o.hub.PprofListen, "pprof-listen", "0", "address of the Go profiles (net/http/pprof); 0 disables them")

	flags.StringVar(&o.hub.AdvertiseAddress, "advertise-address", "",
		"host:port of this replica's gateway for other replicas (default: $POD_IP, the host of --listen or "+
			"the first IPv4 address of this machine, with the port of --listen)")
	flags.DurationVar(&o.hub.DrainDelay, "drain-delay", 5*time.Second,
		"how long a stopping replica keeps serving while it is not ready, so that load balancers notice; a single replica does not wait")
	flags.DurationVar(&o.hub.DrainTime, "drain-time", 30*time.Second,
		"time over which a stopping replica then closes tunnels and watches; also the limit for other requests")

	flags.StringVar(&o.hub.Audit.Path, "audit-log-path", "",
		"audit log file of users' requests to clusters; - is standard output, none disables it "+
			"(default <data-dir>/audit/audit.log with the embedded API server, otherwise none)")
	flags.IntVar(&o.hub.Audit.MaxAge, "audit-log-maxage", 30, "maximum number of days to keep audit log files; 0 keeps all")
	flags.IntVar(&o.hub.Audit.MaxBackups, "audit-log-maxbackup", 10, "maximum number of old audit log files to keep; 0 keeps all")
	flags.IntVar(&o.hub.Audit.MaxSize, "audit-log-maxsize", 100, "maximum size of an audit log file in megabytes before it is rotated")

	flags.StringVar(&o.capi, "capi", capiEmbedded,
		"who runs Cluster API's core controllers: embedded (this hub) or external (an existing installation)")
	flags.StringSliceVar(&o.providers, "providers", provider.All().Names(),
		"Cluster API providers that this hub runs; a hub without control-plane has no gateway and does not run Cluster API's core controllers")
	flags.StringVar(&o.hub.Settings.SystemNamespace, "system-namespace", settings.DefaultSystemNamespace,
		"namespace of the hub's own Secrets and Leases")
	flags.StringVar(&o.hub.Settings.GatewayCASecret, "gateway-ca-secret", "",
		"name of a Secret (kubernetes.io/tls) in --system-namespace with the certificate authority for the gateway, read when the gateway "+
			"has none and by a rotation (default: the hub creates one)")
	flags.StringVar(&o.hub.Settings.SystemDefaultRegistry, "system-default-registry", "", "registry that is prepended to all system images")
	flags.StringSliceVar(&o.hub.Settings.PullSecrets, "system-default-registry-pull-secrets", nil,
		"names of Secrets (kubernetes.io/dockerconfigjson) in --system-namespace with credentials for "+
			"--system-default-registry; machines of every cluster that uses it, and imported clusters, receive them")
	flags.StringVar(&o.hub.Settings.InstallerImagePrefix, "installer-image", settings.DefaultInstallerImagePrefix,
		"prefix of installer images; <runtime>:<version> is appended")
	flags.StringVar(&o.hub.Settings.ClusterAgentImage, "cluster-agent-image", "",
		"image of the cluster-agent with its tag (default "+settings.DefaultClusterAgentImage+":<version of this hub>)")
	flags.BoolVar(&o.hub.Settings.RKE2Prime, "rke2-prime", false,
		"use RKE2 Prime for clusters that do not set the annotation "+rkev1.PrimeEnabledAnnotation)
	flags.StringVar(&o.hub.ReleaseData, "release-data", "",
		"file or URL with data about k3s and RKE2 releases (default: the data built into this hub)")
	o.log.addFlags(flags)
}

// rootDataDir is the data directory of root, and of the hub of the package.
const rootDataDir = "/var/lib/drover/hub"

func defaultDataDir() string {
	if os.Geteuid() == 0 {
		return rootDataDir
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "share", "drover", "hub")
	}
	return "drover-hub"
}

// mode says where the Kubernetes API comes from.
type mode string

const (
	modeEmbedded   mode = "embedded"
	modeKubeconfig mode = "kubeconfig"
	modeInCluster  mode = "in-cluster"
)

func (o *serveOptions) mode() mode {
	switch {
	case o.kubeconfig != "":
		return modeKubeconfig
	case os.Getenv("KUBERNETES_SERVICE_HOST") != "":
		return modeInCluster
	default:
		return modeEmbedded
	}
}

// server returns the options of the hub. The flags must be complete.
func (o *serveOptions) server(logger *slog.Logger) server.Options {
	out := o.hub
	out.Logger, out.LogHandler = logger, &lessChatter{logger.Handler()}
	out.ReleaseDataCache = filepath.Join(o.api.DataDir, releaseDataCache)
	out.ExternalCAPI = o.capi == capiExternal
	out.Version = Version
	out.LeaderElection = o.mode() != modeEmbedded // an embedded API server has one hub: its own
	return out
}
