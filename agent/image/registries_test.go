package image

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
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
			err: "configs[\"b\"].tls: cert_file and key_file go together\n" +
				"mirrors[\"a\"].endpoint[0]: \"\" names no host\n" +
				"mirrors[\"a\"].endpoint[1]: \"ftp://x\" starts with neither http:// nor https://\n" +
				"mirrors[\"a\"].endpoint[2]: \"http://%\" is not a URL: parse \"http://%\": invalid URL escape \"%\"\n" +
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
		"none":                   {image: "a/b", want: []string{"https://index.docker.io/v2 a/b"}},
		"docker.io":              {registries: mirrors("docker.io", "m1", "http://m2:5000"), image: "b", want: []string{"https://m1/v2 library/b", "http://m2:5000/v2 library/b", "https://index.docker.io/v2 library/b"}},
		"other registry":         {registries: mirrors("docker.io", "m1"), image: "quay.io/a/b", want: []string{"https://quay.io/v2 a/b"}},
		"all others":             {registries: mirrors("*", "m1/proxy/"), image: "quay.io/a/b", want: []string{"https://m1/proxy a/b", "https://quay.io/v2 a/b"}},
		"with the default port":  {registries: mirrors("quay.io:443", "m1"), image: "quay.io/a/b", want: []string{"https://m1/v2 a/b", "https://quay.io/v2 a/b"}},
		"a port of this machine": {image: "localhost:5000/a/b", want: []string{"http://localhost:5000/v2 a/b"}},
		"a private address":      {image: "10.0.0.1:5000/a/b", want: []string{"https://10.0.0.1:5000/v2 a/b"}},
		"rewrites are for mirrors": {
			registries: Registries{Mirrors: map[string]Mirror{"docker.io": {Endpoints: []string{"m"}, Rewrites: map[string]string{"^x/": "y/", "^a/(.*)$": "c/$1-d"}}}},
			image:      "a/b", want: []string{"https://m/v2 c/b-d", "https://index.docker.io/v2 a/b"},
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
				got = append(got, e.url.String()+" "+e.repository)
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
