package kubeconfig

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	utilkubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
)

// good is a kubeconfig as Cluster API's providers write it.
func good() *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters["demo"] = &clientcmdapi.Cluster{Server: "https://10.0.0.1:6443", CertificateAuthorityData: []byte("ca"),
		TLSServerName: "kubernetes"}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: "hush", ClientCertificateData: []byte("cert"), ClientKeyData: []byte("key"),
		Impersonate: "jane"}
	config.Contexts["demo"] = &clientcmdapi.Context{Cluster: "demo", AuthInfo: "admin"}
	config.CurrentContext = "demo"
	return config
}

func write(t *testing.T, config *clientcmdapi.Config) []byte {
	t.Helper()
	raw, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestLoad: embedded data is accepted; fields with which the hub would read files, run programs or connect elsewhere are refused by name.
func TestLoad(t *testing.T) {
	cluster := func(change func(*clientcmdapi.Cluster)) func(*clientcmdapi.Config) {
		return func(c *clientcmdapi.Config) { change(c.Clusters["demo"]) }
	}
	user := func(change func(*clientcmdapi.AuthInfo)) func(*clientcmdapi.Config) {
		return func(c *clientcmdapi.Config) { change(c.AuthInfos["admin"]) }
	}
	server := func(url string) func(*clientcmdapi.Config) {
		return cluster(func(c *clientcmdapi.Cluster) { c.Server = url })
	}
	for name, tt := range map[string]struct {
		change func(*clientcmdapi.Config)
		// field is refused; empty means that the kubeconfig is taken.
		field string
	}{
		"a token":      {user(func(u *clientcmdapi.AuthInfo) { u.ClientCertificateData, u.ClientKeyData = nil, nil }), ""},
		"a password":   {user(func(u *clientcmdapi.AuthInfo) { u.Token, u.Username, u.Password = "", "me", "hush" }), ""},
		"no authority": {cluster(func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = nil }), ""},
		"loopback":     {server("https://127.0.0.1:6443"), ""},
		"a name":       {server("https://api.example.com/k8s/clusters/c-m-a"), ""},
		"IPv6":         {server("https://[2001:db8::1]:6443"), ""},
		"authority in a file": {cluster(func(c *clientcmdapi.Cluster) { c.CertificateAuthority = "/etc/passwd" }),
			`clusters["demo"].cluster.certificate-authority`},
		"a proxy": {cluster(func(c *clientcmdapi.Cluster) { c.ProxyURL = "http://127.0.0.1:2379" }),
			`clusters["demo"].cluster.proxy-url`},
		"anybody's certificate": {cluster(func(c *clientcmdapi.Cluster) { c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil }),
			`clusters["demo"].cluster.insecure-skip-tls-verify`},
		"no server":             {server(""), `clusters["demo"].cluster.server`},
		"no TLS":                {server("http://10.0.0.1"), `clusters["demo"].cluster.server`},
		"no scheme":             {server("10.0.0.1:6443"), `clusters["demo"].cluster.server`},
		"a user in the URL":     {server("https://me:hush@10.0.0.1"), `clusters["demo"].cluster.server`},
		"a query":               {server("https://10.0.0.1/?a"), `clusters["demo"].cluster.server`},
		"unspecified":           {server("https://0.0.0.0:6443"), `clusters["demo"].cluster.server`},
		"unspecified IPv6":      {server("https://[::]:6443"), `clusters["demo"].cluster.server`},
		"metadata":              {server("https://169.254.169.254"), `clusters["demo"].cluster.server`},
		"metadata, mapped":      {server("https://[::ffff:169.254.169.254]"), `clusters["demo"].cluster.server`},
		"link-local, zone":      {server("https://[fe80::1%25eth0]:6443"), `clusters["demo"].cluster.server`},
		"metadata IPv6":         {server("https://[fd00:ec2::254]"), `clusters["demo"].cluster.server`},
		"certificate in a file": {user(func(u *clientcmdapi.AuthInfo) { u.ClientCertificate = "/x" }), `users["admin"].user.client-certificate`},
		"key in a file":         {user(func(u *clientcmdapi.AuthInfo) { u.ClientKey = "/x" }), `users["admin"].user.client-key`},
		"token in a file":       {user(func(u *clientcmdapi.AuthInfo) { u.TokenFile = "/x" }), `users["admin"].user.tokenFile`},
		"a program": {user(func(u *clientcmdapi.AuthInfo) { u.Exec = &clientcmdapi.ExecConfig{Command: "sh", APIVersion: "v1"} }),
			`users["admin"].user.exec`},
		"a plugin": {user(func(u *clientcmdapi.AuthInfo) { u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"} }),
			`users["admin"].user.auth-provider`},
		"an entry that is not in use": {func(c *clientcmdapi.Config) { c.AuthInfos["other"] = &clientcmdapi.AuthInfo{TokenFile: "/x"} },
			`users["other"].user.tokenFile`},
		"no context": {func(c *clientcmdapi.Config) { c.CurrentContext = "other" }, "current-context"},
		"a long name": {func(c *clientcmdapi.Config) {
			c.AuthInfos[strings.Repeat("x", 1<<20)] = &clientcmdapi.AuthInfo{TokenFile: "/x"}
		}, `users["x`},
	} {
		t.Run(name, func(t *testing.T) {
			config := good()
			tt.change(config)
			got, err := RESTConfig(write(t, config))
			if tt.field == "" {
				if err != nil || got.Host != config.Clusters["demo"].Server {
					t.Fatalf("got %v, %v", got, err)
				}
				return
			}
			var field *FieldError
			if !errors.As(err, &field) || !strings.HasPrefix(field.Field, tt.field) || len(err.Error()) > 300 ||
				strings.Contains(err.Error(), "hush") {
				t.Errorf("got %v, want one of %s", err, tt.field)
			}
		})
	}
	for _, raw := range []string{"", "hush: [", "[hush]", "\x00"} {
		if _, err := RESTConfig([]byte(raw)); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

// TestAliases: a kubeconfig that is short as a text and large once it is JSON is not decoded.
func TestAliases(t *testing.T) {
	repeated := "\nother: &a " + strings.Repeat("x", 10<<10) + "\nothers: ["
	for times, refused := range map[int]bool{10: false, 1000: true} {
		raw := append(write(t, good()), repeated+strings.Repeat("*a ,", times)+"]\n"...)
		if _, err := Load(raw); (err != nil) != refused {
			t.Errorf("%d aliases: %v", times, err)
		}
	}
}

// known are the fields of kubeconfigs that Load handles. Fields that client-go adds may read files or run programs, too.
var known = map[reflect.Type]string{
	reflect.TypeFor[clientcmdapi.Cluster](): "LocationOfOrigin Server TLSServerName InsecureSkipTLSVerify CertificateAuthority " +
		"CertificateAuthorityData " +
		"ProxyURL DisableCompression Extensions",
	reflect.TypeFor[clientcmdapi.AuthInfo](): "LocationOfOrigin ClientCertificate ClientCertificateData ClientKey ClientKeyData Token " +
		"TokenFile " +
		"Impersonate ImpersonateUID ImpersonateGroups ImpersonateUserExtra Username Password AuthProvider Exec Extensions",
}

// TestFields fails when client-go adds a field, so that somebody decides whether the hub accepts it.
func TestFields(t *testing.T) {
	for kind, want := range known {
		var got []string
		for field := range kind.Fields() {
			got = append(got, field.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has the fields\n%s\nwant\n%s", kind, strings.Join(got, " "), want)
		}
	}
}

// FuzzLoad: for any input Load does not panic, and what it accepts has embedded data only.
func FuzzLoad(f *testing.F) {
	f.Add([]byte("{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: 'https://a'}}], users: [{name: a, user: " +
		"{tokenFile: /x}}]," +
		" contexts: [{name: a, context: {cluster: a, user: a}}], current-context: a}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		config, err := RESTConfig(raw)
		if err != nil {
			return
		}
		if config.BearerTokenFile != "" || config.CAFile != "" || config.CertFile != "" || config.KeyFile != "" || config.Insecure ||
			config.ExecProvider != nil || config.AuthProvider != nil || config.Proxy != nil || !strings.HasPrefix(config.Host, "https://") {
			t.Errorf("took %s", raw)
		}
	})
}

// oneSecret is an API server with the Cluster demo and its kubeconfig Secret.
type oneSecret struct {
	client.Reader
	data   []byte
	owners []metav1.OwnerReference
}

func (s oneSecret) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if cluster, ok := object.(*clusterv1.Cluster); ok && key.Name == "demo" {
		cluster.Name = key.Name
		return nil
	}
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return fmt.Errorf("asked for %T", object)
	}
	secret.Name, secret.OwnerReferences, secret.Data = key.Name, s.owners, map[string][]byte{"value": s.data}
	return nil
}

// TestReader: without Reader, a kubeconfig that names a file of the hub would send that file to a tenant's server,
// and a Cluster would be connected to the imported cluster of its name.
func TestReader(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("the hub's own"), 0o600); err != nil {
		t.Fatal(err)
	}
	var seen string
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Get("Authorization") }))
	defer server.Close()
	config := good()
	config.Clusters["demo"] = &clientcmdapi.Cluster{
		Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{TokenFile: file}
	raw := write(t, config)

	// As Cluster API's cluster cache does it.
	connect := func(reader client.Reader) error {
		kubeconfig, err := utilkubeconfig.FromSecret(t.Context(), reader, client.ObjectKey{Namespace: "ns", Name: "demo"})
		if err != nil {
			return err
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			return err
		}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return err
		}
		answer, err := client.Get(server.URL)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	}
	if err := connect(oneSecret{data: raw}); err != nil || seen != "Bearer the hub's own" {
		t.Fatalf("without it: %v, and the server sees %q", err, seen)
	}
	seen = ""
	err := connect(Reader(oneSecret{data: raw}))
	if err == nil || !strings.Contains(err.Error(), `kubeconfig Secret demo-kubeconfig: users["admin"].user.tokenFile names a file`) ||
		seen != "" {
		t.Errorf("got %v, and the server sees %q", err, seen)
	}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: "mine"}
	if err := connect(Reader(oneSecret{data: write(t, config)})); err != nil || seen != "Bearer mine" {
		t.Errorf("got %v, and the server sees %q", err, seen)
	}
	imported := []metav1.OwnerReference{{APIVersion: "provisioning.cattle.io/v1", Kind: "Cluster", Name: "demo"}}
	seen = ""
	err = connect(Reader(oneSecret{data: write(t, config), owners: imported}))
	if err == nil || !strings.Contains(err.Error(), "names Cluster demo of provisioning.cattle.io, which does not belong to") || seen != "" {
		t.Errorf("with the kubeconfig of an imported cluster: %v, and the server sees %q", err, seen)
	}
}
