package image

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
)

var quiet = log.New(io.Discard, "", 0)

func pemOf(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

func TestDecodeRegistries(t *testing.T) {
	tests := map[string]struct {
		raw, err string
		want     Registries
	}{
		"empty": {},
		"complete": {
			raw: "mirrors:\n  docker.io:\n    endpoint: [https://m.example.com/v2]\n    rewrite: {'^a': b}\n" +
				"configs:\n  m.example.com:\n    auth: {username: u, password: p, auth: a, identity_token: i}\n" +
				"    tls: {ca_file: /ca, cert_file: /c, key_file: /k, insecure_skip_verify: true}\nunknown: 1\n",
			want: Registries{
				Mirrors: map[string]Mirror{"docker.io": {Endpoints: []string{"https://m.example.com/v2"}, Rewrites: map[string]string{"^a": "b"}}},
				Configs: map[string]RegistryConfig{"m.example.com": {
					Auth: &Auth{Username: "u", Password: "p", Auth: "a", IdentityToken: "i"},
					TLS:  &TLS{CAFile: "/ca", CertFile: "/c", KeyFile: "/k", InsecureSkipVerify: true},
				}},
			},
		},
		"not YAML": {raw: "a: [", err: "decoding registries: error converting YAML to JSON: yaml: line 1: did not find expected node content"},
		"faults": {
			raw: "mirrors:\n  a:\n    endpoint: ['', 'ftp://x', 'http://%']\n    rewrite: {'(': b}\nconfigs:\n  b: {tls: {cert_file: /c}}\n",
			err: "configs[\"b\"].tls: cert_file and key_file must be set together\n" +
				"mirrors[\"a\"].endpoint[0]: \"\" has no host\n" +
				"mirrors[\"a\"].endpoint[1]: \"ftp://x\" must start with http:// or https://\n" +
				"mirrors[\"a\"].endpoint[2]: \"http://%\" is not a URL: invalid URL escape \"%\"\n" +
				"mirrors[\"a\"].rewrite[\"(\"]: error parsing regexp: missing closing ): `(`",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeRegistries([]byte(test.raw))
			if err == nil {
				err = got.Validate()
			}
			if err != nil || test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Fatalf("got %v", err)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEndpoints(t *testing.T) {
	mirrors := func(host string, endpoints ...string) Registries {
		return Registries{Mirrors: map[string]Mirror{host: {Endpoints: endpoints}}}
	}
	tests := map[string]struct {
		registries Registries
		image      string
		want       []string
	}{
		"none": {image: "a/b", want: []string{"https://index.docker.io/v2 a/b"}},
		"docker.io": {registries: mirrors("docker.io", "m1", "http://m2:5000"), image: "b",
			want: []string{"https://m1/v2 library/b for docker.io", "http://m2:5000/v2 library/b for docker.io",
				"https://index.docker.io/v2 library/b"}},
		"docker.io by its other names": {registries: mirrors("index.docker.io", "m1"), image: "docker.io/a/b",
			want: []string{"https://m1/v2 a/b for docker.io", "https://index.docker.io/v2 a/b"}},
		"docker.io by where it is": {registries: mirrors("registry-1.docker.io", "m1"), image: "a/b",
			want: []string{"https://m1/v2 a/b for docker.io", "https://index.docker.io/v2 a/b"}},
		"other registry": {registries: mirrors("docker.io", "m1"), image: "quay.io/a/b", want: []string{"https://quay.io/v2 a/b"}},
		"all others": {registries: mirrors("*", "m1/proxy/"), image: "quay.io/a/b",
			want: []string{"https://m1/proxy a/b for quay.io", "https://quay.io/v2 a/b"}},
		"its own name comes before all others": {registries: Registries{Mirrors: map[string]Mirror{"*": {Endpoints: []string{"m1"}},
			"quay.io": {Endpoints: []string{"m2"}}}},
			image: "quay.io/a/b", want: []string{"https://m2/v2 a/b for quay.io", "https://quay.io/v2 a/b"}},
		"a mirror without endpoints hides all others": {registries: Registries{Mirrors: map[string]Mirror{"*": {Endpoints: []string{"m1"}},
			"quay.io": {}}},
			image: "quay.io/a/b", want: []string{"https://quay.io/v2 a/b"}},
		"with the default port": {registries: mirrors("quay.io:443", "m1"), image: "quay.io/a/b",
			want: []string{"https://m1/v2 a/b for quay.io", "https://quay.io/v2 a/b"}},
		"another port is another registry": {registries: mirrors("quay.io", "m1"), image: "quay.io:5000/a/b",
			want: []string{"https://quay.io:5000/v2 a/b"}},
		"paths": {registries: mirrors("quay.io", "https://m1", "https://m1/", "https://m2/v2", "https://m3/v2/",
			"https://m4/artifactory/api/docker/x/v2"), image: "quay.io/a/b",
			want: []string{"https://m1/v2 a/b for quay.io", "https://m2/v2 a/b for quay.io", "https://m3/v2 a/b for quay.io",
				"https://m4/artifactory/api/docker/x/v2 a/b for quay.io", "https://quay.io/v2 a/b"}},
		"a port of this machine": {image: "localhost:5000/a/b", want: []string{"http://localhost:5000/v2 a/b"}},
		"a private address":      {image: "10.0.0.1:5000/a/b", want: []string{"https://10.0.0.1:5000/v2 a/b"}},
		"an address of six parts": {registries: mirrors("quay.io", "http://[fd00::1]:5000"), image: "quay.io/a/b",
			want: []string{"http://[fd00::1]:5000/v2 a/b for quay.io", "https://quay.io/v2 a/b"}},
		"what cannot be used is passed over": {registries: mirrors("quay.io", "ftp://a", "/path", "m1"), image: "quay.io/a/b",
			want: []string{"https://m1/v2 a/b for quay.io", "https://quay.io/v2 a/b"}},
		"rewrites are for mirrors": {
			registries: Registries{Mirrors: map[string]Mirror{"docker.io": {Endpoints: []string{"m"},
				Rewrites: map[string]string{"^x/": "y/", "^a/(.*)$": "c/$1-d"}}}},
			image: "a/b", want: []string{"https://m/v2 c/b-d for docker.io", "https://index.docker.io/v2 a/b"},
		},
		"rewrites that lead nowhere": {
			registries: Registries{Mirrors: map[string]Mirror{"docker.io": {Endpoints: []string{"m"},
				Rewrites: map[string]string{"(": "x", "^a": "A B", "b$": "c"}}}},
			image: "a/b", want: []string{"https://m/v2 a/c for docker.io", "https://index.docker.io/v2 a/b"},
		},
		"the registry itself is no mirror": {
			registries: Registries{Mirrors: map[string]Mirror{"r:5000": {Endpoints: []string{"http://r:5000", "https://r:5000/v2"},
				Rewrites: map[string]string{"^a/": "c/"}}}},
			image: "r:5000/a/b", want: []string{"http://r:5000/v2 a/b", "https://r:5000/v2 a/b"},
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			ref, err := name.ParseReference(test.image)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range test.registries.endpoints(ref.Context()) {
				line := e.url.String() + " " + e.repository
				if e.namespace != "" {
					line += " for " + e.namespace
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzDecodeRegistries(f *testing.F) {
	f.Add([]byte("mirrors:\n  docker.io:\n    endpoint: [https://m/v2, localhost:5000]\n    rewrite: {'^a': b}\n"), "a/b:c")
	f.Fuzz(func(t *testing.T, raw []byte, image string) {
		registries, err := DecodeRegistries(raw)
		if err != nil {
			return
		}
		ref, err := name.ParseReference(image)
		if err != nil {
			return
		}
		_ = registries.Validate()
		for _, e := range registries.endpoints(ref.Context()) {
			if _, err := e.repo(); err != nil {
				t.Errorf("endpoint %v is no repository: %v", e, err)
			}
		}
	})
}

// TestFaultyEndpointShowsNoPassword shows that S4 cannot happen here: what is wrong with an endpoint is logged.
func TestFaultyEndpointShowsNoPassword(t *testing.T) {
	for _, text := range []string{"ftp://user:secret@mirror", "http://user:sec%ret@mirror", "http://user:secret@", "user:se@cret@mir ror"} {
		_, err := parseEndpoint(text)
		if err == nil || strings.Contains(err.Error(), "sec") || strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: got %v", text, err)
		}
	}
}
