package cli

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

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
	if err := feed.Check(o.releaseData); err != nil {
		return fmt.Errorf("--release-data: %w", err)
	}
	if o.clusterAgentImage == "" {
		o.clusterAgentImage = settings.DefaultClusterAgentImage + ":" + strings.ReplaceAll(Version, "+", "-")
	}
	if _, err := name.ParseReference(o.clusterAgentImage, name.WithDefaultRegistry("")); err != nil {
		return fmt.Errorf("--cluster-agent-image: must be an image such as %[2]s:v1.2.3, got %[1]q: %[3]w", o.clusterAgentImage,
			settings.DefaultClusterAgentImage, err)
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
			return fmt.Errorf("--assets-dir: finding the directory of this program: %w", err)
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

// completeAdvertiseAddress leaves the address empty with the embedded API server, where there are no other replicas.
func (o *serveOptions) completeAdvertiseAddress() error {
	if o.drainDelay < 0 || o.drainTime < 0 {
		return errors.New("--drain-delay and --drain-time must not be negative")
	}
	if o.mode() == modeEmbedded {
		if o.advertiseAddress != "" {
			return errors.New("--advertise-address needs --kubeconfig: a hub with the embedded API server has no other replicas")
		}
		return nil
	}
	if o.advertiseAddress != "" {
		host, port, err := net.SplitHostPort(o.advertiseAddress)
		if err != nil || host == "" || port == "" {
			return fmt.Errorf("--advertise-address: must be host:port such as 10.0.0.7:8443, got %q", o.advertiseAddress)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(o.listen)
	if err != nil {
		return fmt.Errorf("--listen: must be [host]:port, got %q: %w", o.listen, err)
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

// completeAudit sets the path of the audit log.
func (o *serveOptions) completeAudit() error {
	for flag, value := range map[string]int{
		"--audit-log-maxage": o.audit.MaxAge, "--audit-log-maxbackup": o.audit.MaxBackups, "--audit-log-maxsize": o.audit.MaxSize,
	} {
		if value < 0 {
			return fmt.Errorf("%s: must not be negative, got %d", flag, value)
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

// completeAPIServer refuses flags of the embedded API server where there is none, and sets the path of its audit log.
func (o *serveOptions) completeAPIServer() error {
	if o.mode() != modeEmbedded {
		for flag, value := range map[string]string{
			"--encryption-key-dir": o.encryptionKeyDir, "--api-audit-log-path": o.apiAuditLog, "--api-audit-policy-file": o.apiAuditPolicy,
		} {
			if value != "" {
				return fmt.Errorf(
					"%s is for the embedded API server, which this hub does not run: configure the API server of its cluster instead", flag)
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

// completeWebhookURL leaves the URL empty in a cluster, where a Service is used.
func (o *serveOptions) completeWebhookURL() error {
	if o.webhookURL != "" || o.mode() == modeInCluster {
		return nil
	}
	_, port, err := net.SplitHostPort(o.webhookListen)
	if err != nil {
		return fmt.Errorf("--webhook-listen: must be [host]:port, got %q: %w", o.webhookListen, err)
	}
	host := "127.0.0.1"
	if o.mode() == modeKubeconfig {
		// The API server is on another machine, so it uses the host of --server-url.
		server, err := url.Parse(o.serverURL)
		if err != nil {
			return fmt.Errorf("--server-url: %w", err)
		}
		host = server.Hostname()
	}
	o.webhookURL = "https://" + net.JoinHostPort(host, port)
	return nil
}

func (o *serveOptions) completeServerURL() error {
	if o.serverURL != "" {
		if !strings.HasPrefix(o.serverURL, "https://") {
			return fmt.Errorf("--server-url: must begin with https://, got %q", o.serverURL)
		}
		o.serverURL = strings.TrimRight(o.serverURL, "/")
		return nil
	}
	if o.mode() == modeInCluster {
		return errors.New("--server-url is required in a cluster: the address of a Pod is not stable")
	}
	_, port, err := net.SplitHostPort(o.listen)
	if err != nil {
		return fmt.Errorf("--listen: must be [host]:port, got %q: %w", o.listen, err)
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
		return nil, fmt.Errorf("reading the addresses of this machine: %w", err)
	}
	for _, address := range addresses {
		network, ok := address.(*net.IPNet)
		if ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP, nil
		}
	}
	return net.IPv4(127, 0, 0, 1), nil
}
