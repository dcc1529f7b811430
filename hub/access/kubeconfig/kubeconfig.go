// Package kubeconfig opens kubeconfigs that somebody else may have written. A kubeconfig can make whoever opens it read files, run programs
// and connect anywhere; for a user's own that is as it should be, but the hub opens those of its tenants. Here it holds data only: a
// server, the authority to know it by, and a credential.
//
// Every kubeconfig that the hub takes from a Secret goes through this package. Files that an administrator names on the command line do
// not.
package kubeconfig

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/drover-dev/drover/hub/util/limitedyaml"
)

const (
	// maxName bounds what an error quotes of the name of an entry.
	maxName = 63
	// maxSize is how many bytes a kubeconfig may have with all aliases written out. A Secret has a MiB.
	maxSize = 2 << 20
)

// FieldError says which field of a kubeconfig is refused, and what to write instead.
type FieldError struct{ Field, Problem string }

// Error implements error.
func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// Load reads a kubeconfig and returns a *FieldError for the first field that it may not have, in the entries in use and all others.
func Load(raw []byte) (*clientcmdapi.Config, error) {
	if limitedyaml.Check(raw, maxSize) != nil {
		return nil, &FieldError{"the kubeconfig", "is no YAML, or too large once its aliases are written out: write it without aliases"}
	}
	config, err := clientcmd.Load(raw)
	if err != nil {
		// The parser's error may quote a credential.
		return nil, &FieldError{"the kubeconfig", "is not one: write YAML of apiVersion v1, kind Config"}
	}
	for _, name := range slices.Sorted(maps.Keys(config.Clusters)) {
		if err := checkCluster(config.Clusters[name]); err != nil {
			err.Field = fmt.Sprintf("clusters[%s].cluster.%s", short(name), err.Field)
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(config.AuthInfos)) {
		if err := checkUser(config.AuthInfos[name]); err != nil {
			err.Field = fmt.Sprintf("users[%s].user.%s", short(name), err.Field)
			return nil, err
		}
	}
	return config, nil
}

// RESTConfig is how the server is reached that a kubeconfig leads to. Errors are those of Load.
func RESTConfig(raw []byte) (*rest.Config, error) {
	config, err := Load(raw)
	if err != nil {
		return nil, err
	}
	out, err := clientcmd.NewDefaultClientConfig(*config, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, &FieldError{"current-context", "leads to no usable cluster and user: name a context of the kubeconfig"}
	}
	return out, nil
}

func short(name string) string {
	if len(name) > maxName {
		name = name[:maxName] + "..."
	}
	return fmt.Sprintf("%q", name)
}

// checkCluster returns what is wrong with an entry, with the field's name within it.
func checkCluster(c *clientcmdapi.Cluster) *FieldError {
	switch {
	case c == nil:
		return nil
	case c.CertificateAuthority != "":
		return refused("certificate-authority",
			"names a file, which the hub would read from its own disk: put the content into certificate-authority-data")
	case c.ProxyURL != "":
		return refused("proxy-url", "is not allowed: the hub reaches clusters directly or through their tunnels")
	case c.InsecureSkipTLSVerify:
		return refused("insecure-skip-tls-verify", "is not allowed: put the server's authority into certificate-authority-data")
	}
	if problem := checkServer(c.Server); problem != "" {
		return refused("server", problem)
	}
	return nil
}

// checkUser returns what is wrong with an entry, with the field's name within it.
func checkUser(u *clientcmdapi.AuthInfo) *FieldError {
	if u == nil {
		return nil
	}
	for _, file := range []struct{ field, value, instead string }{
		{"client-certificate", u.ClientCertificate, "client-certificate-data"},
		{"client-key", u.ClientKey, "client-key-data"},
		{"tokenFile", u.TokenFile, "token"},
	} {
		if file.value != "" {
			return refused(file.field, "names a file, which the hub would read from its own disk: put the content into "+file.instead)
		}
	}
	switch {
	case u.Exec != nil:
		return refused("exec", "is not allowed, since the hub runs no programs: put a token or a client certificate into the kubeconfig")
	case u.AuthProvider != nil:
		return refused("auth-provider", "is not allowed, since the hub runs no plugins: put a token or a client certificate into the kubeconfig")
	}
	return nil
}

func refused(field, problem string) *FieldError { return &FieldError{Field: field, Problem: problem} }

// checkServer says what is wrong with the URL of a server. The loopback address is allowed: a cluster may well run beside the hub, and
// since the server has to prove by TLS that it has a certificate of the kubeconfig's own authority, nothing else there is told or answers
// anything. Link-local addresses are where clouds have their metadata, and the unspecified ones mean the hub's own host without saying so.
func checkServer(server string) string {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return "must be a URL such as https://api.example.com:6443"
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "must have no user, query or fragment: a URL such as https://api.example.com:6443"
	}
	address, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return ""
	}
	if err := CheckAddress(address); err != nil {
		return err.Error()
	}
	return ""
}

var errAddress = errors.New("is an address that no cluster has: name the address of the cluster's API server")

// CheckAddress returns an error for an address that the hub connects to for nobody.
func CheckAddress(address netip.Addr) error {
	address = address.Unmap()
	if address.IsUnspecified() || address.IsLinkLocalUnicast() || address.IsMulticast() || address == awsMetadata {
		return errAddress
	}
	return nil
}

// awsMetadata is not link-local, as the metadata services of other clouds and its own IPv4 address are.
var awsMetadata = netip.MustParseAddr("fd00:ec2::254")
