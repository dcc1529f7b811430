package cli

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/hub/nodedriver/jobs"
	"github.com/drover-dev/drover/hub/server/feed"
	"github.com/drover-dev/drover/hub/server/settings"
)

// complete sets the defaults that depend on other flags and on this machine, and returns an error for values that cannot work.
func (o *serveOptions) complete() error {
	if o.capi != capiEmbedded && o.capi != capiExternal {
		return fmt.Errorf("--capi: must be embedded or external, got %q", o.capi)
	}
	if o.mode() == modeEmbedded && o.capi == capiExternal {
		return errors.New("--capi=external needs --kubeconfig: nothing else can run Cluster API on the embedded API server")
	}
	if err := o.completeProviders(); err != nil {
		return err
	}
	if err := feed.Check(o.hub.ReleaseData); err != nil {
		return fmt.Errorf("--release-data: %w", err)
	}
	if err := settings.CheckRegistry(o.hub.Settings.SystemDefaultRegistry); err != nil {
		return fmt.Errorf("--system-default-registry: %w", err)
	}
	if o.hub.Settings.ClusterAgentImage == "" {
		o.hub.Settings.ClusterAgentImage = ofThisVersion(settings.DefaultClusterAgentImage)
	}
	if _, err := name.ParseReference(o.hub.Settings.ClusterAgentImage, name.WithDefaultRegistry("")); err != nil {
		return fmt.Errorf("--cluster-agent-image: must be an image such as %[2]s:v1.2.3, got %[1]q: %[3]w", o.hub.Settings.ClusterAgentImage,
			settings.DefaultClusterAgentImage, err)
	}
	installer := settings.Settings{InstallerImagePrefix: o.hub.Settings.InstallerImagePrefix}.InstallerImage("rke2", "v1.36.3+rke2r1")
	if _, err := name.ParseReference(installer, name.WithDefaultRegistry("")); err != nil {
		return fmt.Errorf("--installer-image: must be the prefix of an image such as %s, to which <runtime>:<version> is appended, got %q: %w",
			settings.DefaultInstallerImagePrefix, o.hub.Settings.InstallerImagePrefix, err)
	}
	if o.hub.WebhookListen == "" {
		o.hub.WebhookListen = ":9443"
		if o.mode() == modeEmbedded {
			o.hub.WebhookListen = "127.0.0.1:9443"
		}
	}
	if o.hub.NodeDriverImage == "" && len(o.hub.NodeDriverPullSecrets) > 0 {
		return errors.New("--node-driver-image-pull-secrets needs --node-driver-image")
	}
	if o.hub.NodeDriverImage == "" && o.nodeDriverScheduling != "" {
		return errors.New("--node-driver-scheduling needs --node-driver-image")
	}
	var err error
	if o.hub.NodeDriverScheduling, err = jobs.ParseScheduling(o.nodeDriverScheduling); err != nil {
		return fmt.Errorf("--node-driver-scheduling: %w", err)
	}
	if err := o.completeAudit(); err != nil {
		return err
	}
	if o.hub.AssetsDir == "" {
		program, err := os.Executable()
		if err != nil {
			return fmt.Errorf("--assets-dir: finding the directory of this program: %w", err)
		}
		o.hub.AssetsDir = filepath.Dir(program)
	}
	if err := o.completeServerURL(); err != nil {
		return err
	}
	if err := o.completeAdvertiseAddress(); err != nil {
		return err
	}
	return o.completeWebhookURL()
}

// completeProviders refuses a part of a hub where nothing could run the others.
func (o *serveOptions) completeProviders() (err error) {
	if o.hub.Providers, err = provider.Parse(o.providers); err != nil {
		return fmt.Errorf("--providers: %w", err)
	}
	if o.mode() == modeEmbedded && !o.hub.Providers.Has(provider.ControlPlane) {
		return errors.New("--providers without control-plane needs --kubeconfig: that of the cluster in which another hub has that provider")
	}
	return nil
}

// completeAdvertiseAddress leaves the address empty with the embedded API server, where there are no other replicas.
func (o *serveOptions) completeAdvertiseAddress() error {
	if o.hub.DrainDelay < 0 || o.hub.DrainTime < 0 {
		return errors.New("--drain-delay and --drain-time must not be negative")
	}
	if o.mode() == modeEmbedded {
		if o.hub.AdvertiseAddress != "" {
			return errors.New("--advertise-address needs --kubeconfig: a hub with the embedded API server has no other replicas")
		}
		return nil
	}
	if o.hub.AdvertiseAddress != "" {
		host, port, err := net.SplitHostPort(o.hub.AdvertiseAddress)
		if err != nil || host == "" || port == "" {
			return fmt.Errorf("--advertise-address: must be host:port such as 10.0.0.7:8443, got %q", o.hub.AdvertiseAddress)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(o.hub.GatewayListen)
	if err != nil {
		return fmt.Errorf("--listen: must be [host]:port, got %q: %w", o.hub.GatewayListen, err)
	}
	if ip := net.ParseIP(host); os.Getenv("POD_IP") != "" {
		host = os.Getenv("POD_IP")
	} else if host == "" || ip != nil && ip.IsUnspecified() {
		first, err := o.ownAddress()
		if err != nil {
			return fmt.Errorf("--advertise-address: %w", err)
		}
		host = first.String()
	}
	o.hub.AdvertiseAddress = net.JoinHostPort(host, port)
	return nil
}

// completeAudit sets the path of the audit log.
func (o *serveOptions) completeAudit() error {
	for flag, value := range map[string]int{
		"--audit-log-maxage": o.hub.Audit.MaxAge, "--audit-log-maxbackup": o.hub.Audit.MaxBackups, "--audit-log-maxsize": o.hub.Audit.MaxSize,
	} {
		if value < 0 {
			return fmt.Errorf("%s: must not be negative, got %d", flag, value)
		}
	}
	switch {
	case o.hub.Audit.Path == noAudit:
		o.hub.Audit.Path = ""
	case o.hub.Audit.Path == "" && o.mode() == modeEmbedded:
		o.hub.Audit.Path = filepath.Join(o.api.DataDir, "audit", "audit.log")
	}
	return o.completeAPIServer()
}

// completeAPIServer refuses flags of the embedded API server where there is none, and sets the paths that are in its data directory.
func (o *serveOptions) completeAPIServer() error {
	if o.mode() != modeEmbedded {
		for flag, set := range map[string]bool{
			"--api-port": o.apiPort.Changed, "--encryption-key-dir": o.api.EncryptionKeyDir != "",
			"--api-audit-log-path": o.api.Audit.Path != "", "--api-audit-policy-file": o.api.Audit.PolicyFile != "",
		} {
			if set {
				return fmt.Errorf(
					"%s is for the embedded API server, which this hub does not run: configure the API server of its cluster instead", flag)
			}
		}
		return nil
	}
	if o.hub.NodeDriverImage != "" {
		return errors.New("--node-driver-image is for a hub in a cluster: the embedded API server has no Pods; leave it out")
	}
	if o.hub.NodeDriverDir == "" {
		o.hub.NodeDriverDir = filepath.Join(o.api.DataDir, "node-drivers")
	}
	switch o.api.Audit.Path {
	case noAudit:
		o.api.Audit.Path = ""
	case "":
		o.api.Audit.Path = filepath.Join(o.api.DataDir, "audit", "api.log")
	}
	return nil
}

// completeWebhookURL leaves the URL empty in a cluster, where a Service is used.
func (o *serveOptions) completeWebhookURL() error {
	if o.hub.WebhookURL != "" || o.mode() == modeInCluster {
		return nil
	}
	_, port, err := net.SplitHostPort(o.hub.WebhookListen)
	if err != nil {
		return fmt.Errorf("--webhook-listen: must be [host]:port, got %q: %w", o.hub.WebhookListen, err)
	}
	host := "127.0.0.1"
	if o.mode() == modeKubeconfig {
		// The API server is on another machine, so it uses the host of --server-url.
		server, err := url.Parse(o.hub.Settings.ServerURL)
		if err != nil {
			return fmt.Errorf("--server-url: %w", err)
		}
		host = server.Hostname()
	}
	o.hub.WebhookURL = "https://" + net.JoinHostPort(host, port)
	return nil
}

func (o *serveOptions) completeServerURL() error {
	if o.hub.Settings.ServerURL != "" {
		var err error
		if o.hub.Settings.ServerURL, err = settings.ParseServerURL(o.hub.Settings.ServerURL); err != nil {
			return fmt.Errorf("--server-url: %w", err)
		}
		return nil
	}
	if !o.hub.Providers.Has(provider.ControlPlane) && !o.hub.Providers.Has(provider.Bootstrap) {
		return nil // nothing that this process writes is for machines
	}
	if o.mode() == modeInCluster {
		return errors.New("--server-url is required in a cluster: the address of a Pod is not stable")
	}
	_, port, err := net.SplitHostPort(o.hub.GatewayListen)
	if err != nil {
		return fmt.Errorf("--listen: must be [host]:port, got %q: %w", o.hub.GatewayListen, err)
	}
	ip, err := o.ownAddress()
	if err != nil {
		return fmt.Errorf("--server-url: %w", err)
	}
	o.hub.Settings.ServerURL = "https://" + net.JoinHostPort(ip.String(), port)
	return nil
}

// ownAddress is the first address of this machine that another machine may be able to reach. A machine without one has perhaps no network
// yet: a loopback address would be written into every machine.
func (o *serveOptions) ownAddress() (net.IP, error) {
	addresses, err := o.addresses()
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of this machine: %w", err)
	}
	if ip := firstAddress(addresses); ip != nil {
		return ip, nil
	}
	return nil, errors.New("must be set: this machine has no address that other machines could reach; its network may not be up yet")
}

// firstAddress is the first IPv4 address that another machine may be able to reach, or else the first IPv6 address; nil for none.
func firstAddress(addresses []net.Addr) net.IP {
	var six net.IP
	for _, address := range addresses {
		network, ok := address.(*net.IPNet)
		switch {
		case !ok || !network.IP.IsGlobalUnicast():
		case network.IP.To4() != nil:
			return network.IP
		case six == nil:
			six = network.IP
		}
	}
	return six
}
