package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/hub/access/apiproxy"
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
	log logOptions

	dataDir    string
	apiPort    int
	kubeconfig string

	listen        string
	serverURL     string
	assetsDir     string
	webhookListen string
	webhookURL    string
	healthListen  string
	metricsListen string
	pprofListen   string

	advertiseAddress string
	drainDelay       time.Duration
	drainTime        time.Duration

	audit apiproxy.AuditOptions

	capi                  string
	systemNamespace       string
	systemDefaultRegistry string
	pullSecrets           []string
	encryptionKeyDir      string
	apiAuditLog           string
	apiAuditPolicy        string
	installerImage        string
	clusterAgentImage     string
	releaseData           string
	rke2Prime             bool
}

func (o *serveOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.dataDir, "data-dir", defaultDataDir(), "data directory of the embedded API server")
	flags.IntVar(&o.apiPort, "api-port", embedded.DefaultPort, "port of the embedded API server on 127.0.0.1")
	flags.StringVar(&o.encryptionKeyDir, "encryption-key-dir", "",
		"directory of the keys with which the embedded API server encrypts Secrets (default <data-dir>/encryption)")
	flags.StringVar(&o.apiAuditLog, "api-audit-log-path", "",
		"audit log file of the embedded API server; - is standard output, none disables it (default <data-dir>/audit/api.log)")
	flags.StringVar(&o.apiAuditPolicy, "api-audit-policy-file", "",
		"audit.k8s.io/v1 Policy for that log (default: metadata of writes and of reads of Secrets)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the management cluster; no embedded API server is started")

	flags.StringVar(&o.listen, "listen", ":8443", "address of the gateway")
	flags.StringVar(&o.serverURL, "server-url", "",
		"https URL of the gateway for machines and users (default https://<first IPv4 address of this machine>:<port of --listen>)")
	flags.StringVar(&o.assetsDir, "assets-dir", "",
		"directory with the system-agent binaries that machines download (default: the directory of this program)")
	flags.StringVar(&o.webhookListen, "webhook-listen", "",
		"address of the webhooks (default 127.0.0.1:9443 with the embedded API server, otherwise :9443)")
	flags.StringVar(&o.webhookURL, "webhook-url", "",
		"https URL of the webhooks for the API server (default: the loopback address, or the Service "+server.WebhookService+" in a cluster)")
	flags.StringVar(&o.healthListen, "health-listen", "127.0.0.1:9440", "address of /healthz and /readyz; 0 disables them")
	flags.StringVar(&o.metricsListen, "metrics-listen", "127.0.0.1:9441", "address of /metrics; 0 disables it")
	flags.StringVar(&o.pprofListen, "pprof-listen", "0", "address of the Go profiles (net/http/pprof); 0 disables them")

	flags.StringVar(&o.advertiseAddress, "advertise-address", "",
		"host:port of this replica's gateway for other replicas (default: $POD_IP, the host of --listen or "+
			"the first IPv4 address of this machine, with the port of --listen)")
	flags.DurationVar(&o.drainDelay, "drain-delay", 5*time.Second,
		"how long a stopping replica keeps serving while it is not ready, so that load balancers notice; a single replica does not wait")
	flags.DurationVar(&o.drainTime, "drain-time", 30*time.Second,
		"time over which a stopping replica then closes tunnels and watches; also the limit for other requests")

	flags.StringVar(&o.audit.Path, "audit-log-path", "",
		"audit log file of users' requests to clusters; - is standard output, none disables it "+
			"(default <data-dir>/audit/audit.log with the embedded API server, otherwise none)")
	flags.IntVar(&o.audit.MaxAge, "audit-log-maxage", 30, "maximum number of days to keep audit log files; 0 keeps all")
	flags.IntVar(&o.audit.MaxBackups, "audit-log-maxbackup", 10, "maximum number of old audit log files to keep; 0 keeps all")
	flags.IntVar(&o.audit.MaxSize, "audit-log-maxsize", 100, "maximum size of an audit log file in megabytes before it is rotated")

	flags.StringVar(&o.capi, "capi", capiEmbedded,
		"who runs Cluster API's core controllers: embedded (this hub) or external (an existing installation)")
	flags.StringVar(&o.systemNamespace, "system-namespace", settings.DefaultSystemNamespace, "namespace of the hub's own Secrets and Leases")
	flags.StringVar(&o.systemDefaultRegistry, "system-default-registry", "", "registry that is prepended to all system images")
	flags.StringSliceVar(&o.pullSecrets, "system-default-registry-pull-secrets", nil,
		"names of Secrets (kubernetes.io/dockerconfigjson) in --system-namespace with credentials for "+
			"--system-default-registry; machines of every cluster that uses it receive them")
	flags.StringVar(&o.installerImage, "installer-image", settings.DefaultInstallerImagePrefix,
		"prefix of installer images; <runtime>:<version> is appended")
	flags.StringVar(&o.clusterAgentImage, "cluster-agent-image", "",
		"image of the cluster-agent with its tag (default "+settings.DefaultClusterAgentImage+":<version of this hub>)")
	flags.BoolVar(&o.rke2Prime, "rke2-prime", false,
		"use RKE2 Prime for clusters that do not set the annotation "+rkev1.PrimeEnabledAnnotation)
	flags.StringVar(&o.releaseData, "release-data", "",
		"file or URL with data about k3s and RKE2 releases (default: the data built into this hub)")
	o.log.addFlags(flags)
}

func defaultDataDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/drover/hub"
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
	return server.Options{
		Settings: settings.Settings{
			ServerURL:             o.serverURL,
			InstallerImagePrefix:  o.installerImage,
			ClusterAgentImage:     o.clusterAgentImage,
			SystemDefaultRegistry: o.systemDefaultRegistry,
			PullSecrets:           o.pullSecrets,
			SystemNamespace:       o.systemNamespace,
			RKE2Prime:             o.rke2Prime,
		},
		Logger:           logger,
		LogHandler:       &lessChatter{logger.Handler()},
		GatewayListen:    o.listen,
		AssetsDir:        o.assetsDir,
		WebhookListen:    o.webhookListen,
		WebhookURL:       o.webhookURL,
		HealthListen:     o.healthListen,
		MetricsListen:    o.metricsListen,
		PprofListen:      o.pprofListen,
		Audit:            o.audit,
		ReleaseData:      o.releaseData,
		ReleaseDataCache: filepath.Join(o.dataDir, releaseDataCache),

		ExternalCAPI:   o.capi == capiExternal,
		LeaderElection: o.mode() != modeEmbedded, // an embedded API server has one hub: its own

		AdvertiseAddress: o.advertiseAddress,
		DrainDelay:       o.drainDelay,
		DrainTime:        o.drainTime,
	}
}
