package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/pflag"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/apiproxy"
	"github.com/drover-dev/drover/hub/app"
	"github.com/drover-dev/drover/hub/embedded"
	"github.com/drover-dev/drover/hub/release/feed"
	"github.com/drover-dev/drover/hub/settings"
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
	flags.StringVar(&o.dataDir, "data-dir", defaultDataDir(), "where an embedded API server keeps its data")
	flags.IntVar(&o.apiPort, "api-port", embedded.DefaultPort, "port of the embedded API server on 127.0.0.1")
	flags.StringVar(&o.encryptionKeyDir, "encryption-key-dir", "", "where the keys are kept that the embedded API server encrypts Secrets with (default encryption in --data-dir)")
	flags.StringVar(&o.apiAuditLog, "api-audit-log-path", "", "file for the audit log of the embedded API server; - is the standard output, none turns it off (default audit/api.log in --data-dir)")
	flags.StringVar(&o.apiAuditPolicy, "api-audit-policy-file", "", "Policy of audit.k8s.io/v1 for that log (default: writes, and reads of Secrets, without their content)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "use the cluster of this kubeconfig and start no API server")

	flags.StringVar(&o.listen, "listen", ":8443", "where machines reach the gateway")
	flags.StringVar(&o.serverURL, "server-url", "", "https URL under which machines reach the gateway (default https://<first IPv4 address of this machine>:<port of --listen>)")
	flags.StringVar(&o.assetsDir, "assets-dir", "", "directory with the agents that machines download (default: the directory of this program)")
	flags.StringVar(&o.webhookListen, "webhook-listen", "", "where the API server reaches the webhooks (default 127.0.0.1:9443 with an embedded API server, otherwise :9443)")
	flags.StringVar(&o.webhookURL, "webhook-url", "", "https URL under which the API server reaches the webhooks (default: the loopback address, or the Service "+app.WebhookService+" in a cluster)")
	flags.StringVar(&o.healthListen, "health-listen", "127.0.0.1:9440", "where /healthz and /readyz are served; 0 turns them off")
	flags.StringVar(&o.metricsListen, "metrics-listen", "127.0.0.1:9441", "where /metrics is served; 0 turns it off")
	flags.StringVar(&o.pprofListen, "pprof-listen", "0", "where Go's profiles are served, for developers; 0 turns it off")

	flags.StringVar(&o.advertiseAddress, "advertise-address", "", "host:port at which other replicas of this hub reach the gateway (default: $POD_IP or the host of --listen, or the first IPv4 address of this machine, with the port of --listen)")
	flags.DurationVar(&o.drainDelay, "drain-delay", 5*time.Second, "how long a replica that stops goes on, not ready, until load balancers leave it out; where there is no other replica, it does not wait")
	flags.DurationVar(&o.drainTime, "drain-time", 30*time.Second, "over what time a replica that stops then ends tunnels and watches, one after the other; other requests may last as long")

	flags.StringVar(&o.audit.Path, "audit-log-path", "", "file for the audit log of users' requests for clusters; - is the standard output, none turns it off (default audit/audit.log in --data-dir with an embedded API server, otherwise none)")
	flags.IntVar(&o.audit.MaxAge, "audit-log-maxage", 30, "days after which a file of the audit log is removed; 0 keeps them")
	flags.IntVar(&o.audit.MaxBackups, "audit-log-maxbackup", 10, "how many files of the audit log are kept beside the present one; 0 keeps all")
	flags.IntVar(&o.audit.MaxSize, "audit-log-maxsize", 100, "megabytes after which a new file of the audit log is begun")

	flags.StringVar(&o.capi, "capi", capiEmbedded, "who runs Cluster API's core controllers: embedded (this hub) or external (an installation that is already there)")
	flags.StringVar(&o.systemNamespace, "system-namespace", settings.DefaultSystemNamespace, "namespace for the hub's own Secrets and leases")
	flags.StringVar(&o.systemDefaultRegistry, "system-default-registry", "", "registry to put before the names of all system images")
	flags.StringSliceVar(&o.pullSecrets, "system-default-registry-pull-secrets", nil,
		"names of Secrets (kubernetes.io/dockerconfigjson) in the hub's namespace with credentials for --system-default-registry; given to the machines of every cluster that uses it")
	flags.StringVar(&o.installerImage, "installer-image", settings.DefaultInstallerImagePrefix, "prefix of installer images, completed by <runtime>:<version>")
	flags.StringVar(&o.clusterAgentImage, "cluster-agent-image", "", "image of the cluster-agent, with its tag (default "+settings.DefaultClusterAgentImage+":<version of this hub>)")
	flags.BoolVar(&o.rke2Prime, "rke2-prime", false, "give clusters of RKE2 the edition with long support, unless they say otherwise by the annotation "+rkev1.PrimeEnabledAnnotation)
	flags.StringVar(&o.releaseData, "release-data", "", "file or URL with data about releases of k3s and RKE2 that are newer than this hub (default: what this hub was built with)")
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

// complete fills in what depends on other flags and on the machine, and refuses what cannot work.
func (o *serveOptions) complete() error {
	if o.capi != capiEmbedded && o.capi != capiExternal {
		return fmt.Errorf("--capi %q is neither embedded nor external", o.capi)
	}
	if o.mode() == modeEmbedded && o.capi == capiExternal {
		return errors.New("--capi=external needs --kubeconfig: nobody else can run Cluster API on an embedded API server")
	}
	if err := feed.Check(o.releaseData); err != nil {
		return fmt.Errorf("--release-data: %w", err)
	}
	if o.clusterAgentImage == "" {
		o.clusterAgentImage = settings.DefaultClusterAgentImage + ":" + strings.ReplaceAll(Version, "+", "-")
	}
	if _, err := name.ParseReference(o.clusterAgentImage, name.WithDefaultRegistry("")); err != nil {
		return fmt.Errorf("--cluster-agent-image %q is no image; write one like %s:v1.2.3: %w", o.clusterAgentImage, settings.DefaultClusterAgentImage, err)
	}
	if o.webhookListen == "" {
		o.webhookListen = ":9443"
		if o.mode() == modeEmbedded {
			o.webhookListen = "127.0.0.1:9443"
		}
	}
	if err := o.completeAudit(); err != nil {
		return err
	}
	if o.assetsDir == "" {
		program, err := os.Executable()
		if err != nil {
			return fmt.Errorf("finding the directory of this program for --assets-dir: %w", err)
		}
		o.assetsDir = filepath.Dir(program)
	}
	if err := o.completeServerURL(); err != nil {
		return err
	}
	if err := o.completeAdvertiseAddress(); err != nil {
		return err
	}
	return o.completeWebhookURL()
}

// completeAdvertiseAddress leaves the address empty with an embedded API server, where there are no other replicas.
func (o *serveOptions) completeAdvertiseAddress() error {
	if o.drainDelay < 0 || o.drainTime < 0 {
		return errors.New("--drain-delay and --drain-time must not be negative")
	}
	if o.mode() == modeEmbedded {
		if o.advertiseAddress != "" {
			return errors.New("--advertise-address needs --kubeconfig: a hub with an embedded API server has no other replicas")
		}
		return nil
	}
	if o.advertiseAddress != "" {
		host, port, err := net.SplitHostPort(o.advertiseAddress)
		if err != nil || host == "" || port == "" {
			return fmt.Errorf("--advertise-address %q is not an address with a port, as 10.0.0.7:8443 is", o.advertiseAddress)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(o.listen)
	if err != nil {
		return fmt.Errorf("--listen %q is not an address with a port: %w", o.listen, err)
	}
	if ip := net.ParseIP(host); os.Getenv("POD_IP") != "" {
		host = os.Getenv("POD_IP")
	} else if host == "" || ip != nil && ip.IsUnspecified() {
		first, err := firstIPv4()
		if err != nil {
			return err
		}
		host = first.String()
	}
	o.advertiseAddress = net.JoinHostPort(host, port)
	return nil
}

// completeAudit decides where the audit log goes.
func (o *serveOptions) completeAudit() error {
	for flag, value := range map[string]int{
		"--audit-log-maxage": o.audit.MaxAge, "--audit-log-maxbackup": o.audit.MaxBackups, "--audit-log-maxsize": o.audit.MaxSize,
	} {
		if value < 0 {
			return fmt.Errorf("%s is %d; write 0 or more", flag, value)
		}
	}
	switch {
	case o.audit.Path == noAudit:
		o.audit.Path = ""
	case o.audit.Path == "" && o.mode() == modeEmbedded:
		o.audit.Path = filepath.Join(o.dataDir, "audit", "audit.log")
	}
	return o.completeAPIServer()
}

// completeAPIServer refuses flags of the embedded API server where there is none, and decides where its audit log goes.
func (o *serveOptions) completeAPIServer() error {
	if o.mode() != modeEmbedded {
		for flag, value := range map[string]string{
			"--encryption-key-dir": o.encryptionKeyDir, "--api-audit-log-path": o.apiAuditLog, "--api-audit-policy-file": o.apiAuditPolicy,
		} {
			if value != "" {
				return fmt.Errorf("%s is for the embedded API server, and this hub uses another one; configure that API server instead", flag)
			}
		}
		return nil
	}
	switch o.apiAuditLog {
	case noAudit:
		o.apiAuditLog = ""
	case "":
		o.apiAuditLog = filepath.Join(o.dataDir, "audit", "api.log")
	}
	return nil
}

// completeWebhookURL leaves the URL empty in a cluster, where a Service leads to the webhooks.
func (o *serveOptions) completeWebhookURL() error {
	if o.webhookURL != "" || o.mode() == modeInCluster {
		return nil
	}
	_, port, err := net.SplitHostPort(o.webhookListen)
	if err != nil {
		return fmt.Errorf("--webhook-listen %q is not an address with a port: %w", o.webhookListen, err)
	}
	host := "127.0.0.1"
	if o.mode() == modeKubeconfig {
		// The API server is elsewhere: it has to come in the way machines do.
		server, err := url.Parse(o.serverURL)
		if err != nil {
			return fmt.Errorf("reading --server-url: %w", err)
		}
		host = server.Hostname()
	}
	o.webhookURL = "https://" + net.JoinHostPort(host, port)
	return nil
}

func (o *serveOptions) completeServerURL() error {
	if o.serverURL != "" {
		if !strings.HasPrefix(o.serverURL, "https://") {
			return fmt.Errorf("--server-url %q does not begin with https://", o.serverURL)
		}
		o.serverURL = strings.TrimRight(o.serverURL, "/")
		return nil
	}
	if o.mode() == modeInCluster {
		return errors.New("--server-url is needed in a cluster: the address of a pod is not one that machines can keep")
	}
	_, port, err := net.SplitHostPort(o.listen)
	if err != nil {
		return fmt.Errorf("--listen %q is not an address with a port: %w", o.listen, err)
	}
	ip, err := firstIPv4()
	if err != nil {
		return err
	}
	o.serverURL = "https://" + net.JoinHostPort(ip.String(), port)
	return nil
}

// firstIPv4 is the first address of this machine that another machine may be able to reach, or a loopback address where it has no other.
func firstIPv4() (net.IP, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("looking for an address of this machine: %w", err)
	}
	for _, address := range addresses {
		network, ok := address.(*net.IPNet)
		if ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP, nil
		}
	}
	return net.IPv4(127, 0, 0, 1), nil
}

// checkListeners finds a taken port before anything has been started, and names the flag that changes it.
func (o *serveOptions) checkListeners() error {
	for _, listener := range []struct{ flag, address string }{
		{"--listen", o.listen},
		{"--webhook-listen", o.webhookListen},
		{"--health-listen", o.healthListen},
		{"--metrics-listen", o.metricsListen},
		{"--pprof-listen", o.pprofListen},
	} {
		if listener.address == "0" {
			continue
		}
		l, err := net.Listen("tcp", listener.address)
		if err != nil {
			var opErr *net.OpError
			if errors.As(err, &opErr) {
				err = opErr.Err
			}
			return fmt.Errorf("cannot listen on %s: %w; choose another address with %s", listener.address, err, listener.flag)
		}
		_ = l.Close()
	}
	return nil
}

func (o *serveOptions) app(logger *slog.Logger) app.Options {
	return app.Options{
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
