package server

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// noChain ends the names of the files with the one certificate that signs: the controller manager takes no chain.
const noChain = ".nochain.crt"

// authorities are those of the cluster.
type authorities struct {
	server, client, requestHeader, etcdServer, etcdPeer pki.Authority
}

// makeCertificates makes what is not there yet. Authorities that somebody has put in place are used as they are.
func (s *server) makeCertificates(context.Context) error {
	now := time.Now()
	s.auth = &authorities{}
	for _, a := range []struct {
		file, name string
		into       *pki.Authority
	}{
		{"server-ca", flavour.Name("*-server-ca"), &s.auth.server}, {"client-ca", flavour.Name("*-client-ca"), &s.auth.client},
		{"request-header-ca", flavour.Name("*-request-header-ca"), &s.auth.requestHeader},
		{"etcd/server-ca", "etcd-server-ca", &s.auth.etcdServer}, {"etcd/peer-ca", "etcd-peer-ca", &s.auth.etcdPeer},
	} {
		made, err := pki.EnsureAuthority(s.data.TLS(a.file), a.name, now)
		if err != nil {
			return err
		}
		*a.into = made
	}
	for file, a := range map[string]pki.Authority{"server-ca": s.auth.server, "client-ca": s.auth.client} {
		if err := pki.WriteFile(s.data.TLS(file+noChain), a.SigningPEM(), 0o644); err != nil {
			return err
		}
	}
	if err := s.makeServiceKey(); err != nil {
		return err
	}
	if err := s.makeLeaves(now); err != nil {
		return err
	}
	if err := s.writeTokens(); err != nil {
		return err
	}
	if err := s.writePasswords(); err != nil {
		return err
	}
	return s.writeKubeconfigs()
}

func (s *server) makeLeaves(now time.Time) error {
	first, err := firstAddress(s.ServiceCIDR[0])
	if err != nil {
		return fmt.Errorf("service-cidr: %w", err)
	}
	local := []string{"localhost", "127.0.0.1", "::1", s.NodeName}
	addresses := slices.Concat(s.ips, s.NodeExternalIP, s.TLSSAN, []string{s.AdvertiseAddress})
	api := slices.Concat([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + s.ClusterDomain,
		first}, local, addresses)
	masters := []string{"system:masters"}
	for _, l := range []struct {
		by   pki.Authority
		file string
		leaf pki.Leaf
	}{
		{s.auth.client, "client-admin", pki.Leaf{CommonName: "system:admin", Organization: masters}},
		{s.auth.client, "client-supervisor", pki.Leaf{CommonName: flavour.Name("system:*-supervisor"), Organization: masters}},
		{s.auth.client, "client-kube-apiserver", pki.Leaf{CommonName: "system:apiserver", Organization: masters}},
		{s.auth.client, "client-controller", pki.Leaf{CommonName: "system:kube-controller-manager"}},
		{s.auth.client, "client-scheduler", pki.Leaf{CommonName: "system:kube-scheduler"}},
		{s.auth.client, flavour.Name("client-*-cloud-controller"), pki.Leaf{CommonName: flavour.Name("*-cloud-controller-manager")}},
		{s.auth.requestHeader, "client-auth-proxy", pki.Leaf{CommonName: "system:auth-proxy"}},
		{s.auth.server, "serving-kube-apiserver", pki.Leaf{CommonName: "kube-apiserver", Names: api}},
		{s.auth.server, "kube-controller-manager/kube-controller-manager", pki.Leaf{CommonName: "kube-controller-manager", Names: local}},
		{s.auth.server, "kube-scheduler/kube-scheduler", pki.Leaf{CommonName: "kube-scheduler", Names: local}},
		{s.auth.etcdServer, "etcd/client", pki.Leaf{CommonName: "etcd-client"}},
		{s.auth.etcdServer, "etcd/server-client", pki.Leaf{CommonName: "etcd-server", Names: slices.Concat(local, s.ips)}},
		{s.auth.etcdPeer, "etcd/peer-server-client", pki.Leaf{CommonName: "etcd-peer", Names: slices.Concat(local, s.ips)}},
	} {
		if err := l.by.Ensure(s.data.TLS(filepath.FromSlash(l.file)), l.leaf, now); err != nil {
			return err
		}
	}
	return nil
}

// makeServiceKey makes the key that signs tokens of ServiceAccounts. service.current.key signs; service.key may hold
// older ones too, whose tokens are still good.
func (s *server) makeServiceKey() error {
	if _, err := pki.EnsureKey(s.data.TLS("service.key")); err != nil {
		return err
	}
	current := s.data.TLS("service.current.key")
	if _, err := os.Stat(current); err == nil {
		return nil
	}
	raw, err := os.ReadFile(s.data.TLS("service.key"))
	if err != nil {
		return err
	}
	return pki.WriteFile(current, raw, 0o600)
}

// sign makes the certificates of an agent.
func (s *server) sign(req supervisor.SignRequest) (supervisor.SignResponse, error) {
	out := supervisor.SignResponse{"client-ca": s.auth.client.PEM, "server-ca": s.auth.server.PEM}
	names := append([]string{req.NodeName, "localhost", "127.0.0.1", "::1"}, req.NodeIPs...)
	for name, der := range req.Keys {
		key, err := pki.ParsePublicKey(der)
		if err != nil {
			return nil, fmt.Errorf("certificate %s: %w", name, err)
		}
		by, leaf := s.auth.client, pki.Leaf{}
		switch name {
		case "client-kubelet":
			leaf = pki.Leaf{CommonName: "system:node:" + req.NodeName, Organization: []string{"system:nodes"}}
		case "serving-kubelet":
			by, leaf = s.auth.server, pki.Leaf{CommonName: req.NodeName, Names: names}
		case "client-kube-proxy":
			leaf = pki.Leaf{CommonName: "system:kube-proxy"}
		case flavour.Name("client-*-controller"):
			leaf = pki.Leaf{CommonName: flavour.Name("system:*-controller")}
		default:
			return nil, fmt.Errorf("no certificate is called %q", name)
		}
		if out[name], err = by.Issue(key, leaf, time.Now()); err != nil {
			return nil, fmt.Errorf("issuing %s: %w", name, err)
		}
	}
	return out, nil
}

// firstAddress is that of the service "kubernetes".
func firstAddress(cidr string) (string, error) {
	_, n, err := net.ParseCIDR(cidr)
	if err != nil {
		return "", err
	}
	n.IP[len(n.IP)-1]++
	return n.IP.String(), nil
}

// dnsAddress is k3s's address of the cluster's DNS service: the tenth of the service range.
func dnsAddress(cidr string) string {
	_, n, err := net.ParseCIDR(cidr)
	if err != nil {
		return ""
	}
	n.IP[len(n.IP)-1] += 10
	return n.IP.String()
}
