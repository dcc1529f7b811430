//go:build conformance

package conformance

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"
)

// installerName is as hubs name it.
const installerName = "rancher/system-agent-installer-k3s:v1.35.0-k3s1"

// mirrored is a rule about a registry that registries.yaml names in place of docker.io. S stands for its URL.
func mirrored(name, better, registries, repository string, prepare func(s *store)) rule {
	return rule{name: "6/registries/" + name, better: better, test: func(m *machine) {
		s := newStore(m, nil)
		s.push(repository, m.installer("mirrored"))
		if prepare != nil {
			prepare(s)
		}
		m.write("registries.yaml", strings.NewReplacer("URL", s.URL, "HOST", s.host()).Replace(registries))
		m.says("mirrored", installerName)
	}}
}

// archived is a rule about an archive in the folder of images.
func archived(name, file string, compress func([]byte) []byte) rule {
	return rule{name: "6/archive/" + name, test: func(m *machine) {
		raw := m.archive("docker.io/"+installerName, m.installer("archived"))
		if compress != nil {
			raw = compress(raw)
		}
		m.write("images/"+file, string(raw))
		m.says("archived", installerName)
	}}
}

func zipped(raw []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(raw)
	_ = w.Close()
	return out.Bytes()
}

func zstandard(raw []byte) []byte {
	w, _ := zstd.NewWriter(nil)
	return w.EncodeAll(raw, nil)
}

// escapes is a rule about a layer that wants to write out of its folder: nothing called escaped may be there afterwards.
func escapes(name string, layer func(m *machine) []entry) rule {
	return rule{name: "6/image/never-leaves-its-folder-" + name, better: "S6", test: func(m *machine) {
		reference, _ := newStore(m, nil).push("evil:v1", m.image(layer(m), []entry{script("run.sh", "true")}))
		sum := m.deliver(instructions(of(reference)), map[string]string{"max-failures": "1"})
		m.start()
		m.until("an end, good or bad", func(s state) bool { return s.applied(sum) || s.failed(sum) })
		if m.exists("escaped") || m.exists("var/escaped") || m.exists("var/work/escaped") || m.read("victim") != "" && m.read("victim") != "old" {
			m.Errorf("the image wrote out of its folder")
		}
	}}
}

func init() {
	rules = append(rules,
		rule{name: "6/image/run.sh-default", test: func(m *machine) {
			reference, _ := newStore(m, nil).push("a/b:v1", m.installer("hello"))
			m.says("hello", reference)
		}},
		rule{name: "6/image/run.sh-by-path", test: func(m *machine) {
			reference, _ := newStore(m, nil).push("a/b:v1",
				m.image([]entry{script("run.sh", `installer.sh "$RESTART_STAMP"`),
					script("installer.sh", `echo "$1 in $CATTLE_AGENT_EXECUTION_PWD"; ls`)}))
			s := m.run(instructions(of(reference, obj{"command": "sh", "args": []string{"-c", "run.sh"}, "env": []string{"RESTART_STAMP=stamp"}})))
			if got := s.outputs("applied-output")["i"]; !strings.HasPrefix(got, "stamp in "+m.path("var/work/")) ||
				!strings.HasSuffix(got, "\ninstaller.sh\nrun.sh\n") {
				m.Errorf("it said %q", got)
			}
		}},
		rule{name: "6/image/latest-is-the-default-tag", test: func(m *machine) {
			s := newStore(m, nil)
			s.push("a/b:latest", m.installer("hello"))
			m.says("hello", s.host()+"/a/b")
		}},
		rule{name: "6/image/files", test: func(m *machine) {
			reference, _ := newStore(m, nil).push("a/b:v1", m.image([]entry{
				script("run.sh", `stat -c '%a %u %n' d d/wide d/plain; readlink link; cat d/plain`),
				{tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o777}, ""},
				{tar.Header{Name: "d/wide", Mode: 0o777, Uid: 7}, "w"}, {tar.Header{Name: "d/plain", Mode: 0o644}, "plain\n"},
				{tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "d/plain"}, ""},
			}))
			s := m.run(instructions(of(reference)))
			if got := s.outputs("applied-output")["i"]; got != "755 0 d\n755 0 d/wide\n644 0 d/plain\nd/plain\nplain\n" {
				m.Errorf("it said %q", got)
			}
		}},
		rule{name: "6/image/layers-on-top-of-each-other", test: func(m *machine) {
			reference, _ := newStore(m, nil).push("a/b:v1", m.image(
				[]entry{script("run.sh", "false"), script("gone", ""), {tar.Header{Name: "d/f", Mode: 0o644}, "1"}},
				[]entry{script("run.sh", "ls; cat d/f"), {tar.Header{Name: ".wh.gone", Mode: 0o644}, ""},
					{tar.Header{Name: "d/f", Mode: 0o644}, "2\n"}},
			))
			s := m.run(instructions(of(reference)))
			if got := s.outputs("applied-output")["i"]; got != "d\nrun.sh\n2\n" {
				m.Errorf("it said %q", got)
			}
		}},
		rule{name: "6/image/missing-is-a-failure", test: func(m *machine) {
			m.fail(instructions(of(newStore(m, nil).host() + "/there/is:none")))
		}},
		rule{name: "6/image/missing-is-reported", better: "B4", test: func(m *machine) {
			s := m.fail(instructions(of(newStore(m, nil).host() + "/there/is:none")))
			if !strings.Contains(fmt.Sprint(s.outputs("failed-output")), "there/is") {
				m.Errorf("failed-output is %v", s.outputs("failed-output"))
			}
		}},
		rule{name: "6/image/wrong-layer-is-refused", test: func(m *machine) {
			s := newStore(m, nil)
			image := m.image([]entry{script("run.sh", "echo >>$M/ran")})
			reference, _ := s.push("a/b:v1", image)
			layer := firstLayer(m, image)
			s.intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, layer) {
					return false
				}
				_, _ = w.Write(zipped(make([]byte, 10240)))
				return true
			})
			sum := m.deliver(instructions(of(reference)))
			m.start()
			m.until("the pull", func(state) bool { return s.fetched(layer) > 0 })
			m.never(10*time.Second, "it ran", func(s state) bool { return m.exists("ran") || s.applied(sum) })
		}},
		rule{name: "6/image/by-digest", better: "B12", test: func(m *machine) {
			s := newStore(m, nil)
			_, digest := s.push("a/b:v1", m.installer("hello"))
			m.says("hello", s.host()+"/a/b@"+digest)
		}},
		rule{name: "6/image/by-tag-and-digest", better: "B12", test: func(m *machine) {
			s := newStore(m, nil)
			_, digest := s.push("a/b:v1", m.installer("hello"))
			s.push("a/b:v1", m.installer("another"))
			m.says("hello", s.host()+"/a/b:v1@"+digest)
		}},
		rule{name: "6/image/layers-are-kept", better: "B14", test: func(m *machine) {
			s := newStore(m, nil)
			reference, _ := s.push("a/b:v1", m.installer("hello"))
			m.says("hello", reference)
			before := s.fetched("/blobs/")
			m.run(instructions(of(reference, obj{"env": []string{"A=b"}})))
			if after := s.fetched("/blobs/"); after != before {
				m.Errorf("%d blobs came again", after-before)
			}
		}},
		rule{name: "6/image/stalled-transfer-is-given-up", better: "B14", test: func(m *machine) {
			stalls, good := newStore(m, nil), newStore(m, nil)
			stalls.push(installerName, m.installer("hello"))
			good.push(installerName, m.installer("hello"))
			stalls.intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
					w.Header().Set("Content-Length", "100000")
					w.(http.Flusher).Flush()
					<-r.Context().Done()
					return true
				}
				return false
			})
			m.write("registries.yaml", fmt.Sprintf("mirrors:\n  docker.io:\n    endpoint: [%q, %q]\n", stalls.URL, good.URL))
			m.says("hello", installerName)
		}},
		rule{name: "6/image/next-mirror-for-layers", better: "6", test: func(m *machine) {
			broken, good := newStore(m, nil), newStore(m, nil)
			broken.push(installerName, m.installer("hello"))
			good.push(installerName, m.installer("hello"))
			broken.intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/blobs/") {
					w.WriteHeader(http.StatusNotFound)
					return true
				}
				return false
			})
			m.write("registries.yaml", fmt.Sprintf("mirrors:\n  docker.io:\n    endpoint: [%q, %q]\n", broken.URL, good.URL))
			m.says("hello", installerName)
		}},
		rule{name: "6/image/of-periodic-instruction", test: func(m *machine) {
			reference, _ := newStore(m, nil).push("a/b:v1", m.installer("hello"))
			m.run(periodic(obj{"name": "p", "image": reference}))
			m.until("the report", func(s state) bool { p, _ := s.periodic("p"); return string(p.Stdout) == "hello\n" })
		}},
		escapes("by-name", func(*machine) []entry {
			return []entry{{tar.Header{Name: "../escaped", Mode: 0o644}, "x"}, {tar.Header{Name: "../../escaped", Mode: 0o644}, "x"},
				{tar.Header{Name: "../../../escaped", Mode: 0o644}, "x"}}
		}),
		escapes("by-symlink", func(m *machine) []entry {
			return []entry{{tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: m.dir}, ""},
				{tar.Header{Name: "out/escaped", Mode: 0o644}, "x"}}
		}),
		escapes("by-symlink-to-a-file", func(m *machine) []entry {
			m.write("victim", "old")
			return []entry{{tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: m.path("victim")}, ""},
				{tar.Header{Name: "out", Mode: 0o644}, "x"}}
		}),
		escapes("by-hard-link", func(m *machine) []entry {
			m.write("victim", "old")
			return []entry{{tar.Header{Name: "out", Typeflag: tar.TypeLink, Linkname: "../../../../victim"}, ""},
				{tar.Header{Name: "out", Mode: 0o644}, "x"}}
		}),
		mirrored("mirror", "", "mirrors:\n  docker.io:\n    endpoint: [URL]\n", installerName, nil),
		mirrored("mirror-with-path", "", "mirrors:\n  docker.io:\n    endpoint: [URL/v2]\n", installerName, nil),
		mirrored("mirror-of-everything", "", "mirrors:\n  \"*\":\n    endpoint: [URL]\n", installerName, nil),
		mirrored("dead-mirror-first", "", "mirrors:\n  docker.io:\n    endpoint: [\"http://127.0.0.1:1\", URL]\n", installerName, nil),
		rule{name: "6/registries/empty-mirror-first", test: func(m *machine) {
			s := newStore(m, nil)
			s.push(installerName, m.installer("mirrored"))
			m.write("registries.yaml", fmt.Sprintf("mirrors:\n  docker.io:\n    endpoint: [%q, %q]\n", newStore(m, nil).URL, s.URL))
			m.says("mirrored", installerName)
		}},
		mirrored("rewrite", "", "mirrors:\n  docker.io:\n    endpoint: [URL]\n    rewrite:\n      \"^rancher/(.*)\": \"own/$1\"\n",
			strings.Replace(installerName, "rancher/", "own/", 1), nil),
		mirrored("password", "", "mirrors:\n  docker.io:\n    endpoint: [URL]\nconfigs:\n  HOST:\n    auth: {username: u, password: p}\n",
			installerName,
			func(s *store) { s.intercept(wantsPassword) }),
		mirrored("password-encoded", "", "mirrors:\n  docker.io:\n    endpoint: [URL]\nconfigs:\n  HOST:\n    auth: {auth: dTpw}\n",
			installerName,
			func(s *store) { s.intercept(wantsPassword) }),
		rule{name: "6/registries/own-registry-after-its-mirrors", test: func(m *machine) {
			s := newStore(m, nil)
			reference, _ := s.push("a/b:v1", m.installer("own"))
			m.write("registries.yaml", fmt.Sprintf("mirrors:\n  %q:\n    endpoint: [%q]\n", s.host(), newStore(m, nil).URL))
			m.says("own", reference)
		}},
		rule{name: "6/registries/tls-ca-file", test: tlsRegistry("ca_file: $M/ca.pem")},
		rule{name: "6/registries/tls-insecure", test: tlsRegistry("insecure_skip_verify: true")},
		rule{name: "6/registries/tls-unknown-authority", test: func(m *machine) {
			s := newStore(m, newCA(m))
			s.push(installerName, m.installer("tls"))
			own := newStore(m, nil) // has no such image
			m.write("registries.yaml", fmt.Sprintf("mirrors:\n  %q:\n    endpoint: [%q]\n", own.host(), s.URL))
			m.fail(instructions(of(own.host() + "/" + installerName)))
		}},
		rule{name: "6/registries/wrong-password", test: func(m *machine) {
			s := newStore(m, nil)
			reference, _ := s.push("a/b:v1", m.installer("hello"))
			s.intercept(wantsPassword)
			m.write("registries.yaml", fmt.Sprintf("configs:\n  %q:\n    auth: {username: u, password: wrong}\n", s.host()))
			m.fail(instructions(of(reference)))
		}},
		rule{name: "6/registries/credential-provider", better: "B13", test: credentialProvider},
		rule{name: "6/registries/password-of-docker", test: func(m *machine) {
			s := newStore(m, nil)
			reference, _ := s.push("a/b:v1", m.installer("hello"))
			s.intercept(wantsPassword)
			m.write(".docker/config.json", fmt.Sprintf(`{"auths":{%q:{"auth":"dTpw"}}}`, s.host()))
			m.env = []string{"HOME=" + m.dir}
			m.says("hello", reference)
		}},
		archived("tar", "a.tar", nil),
		archived("gzip", "a.tar.gz", zipped),
		archived("tgz", "a.tgz", zipped),
		archived("zstandard", "a.tar.zst", zstandard),
		archived("name-in-other-case", "A.TAR", nil),
		archived("folder-below", "deep/er/a.tar", nil),
		rule{name: "6/archive/before-any-registry", test: func(m *machine) {
			s := newStore(m, nil)
			reference, _ := s.push("a/b:v1", m.installer("pulled"))
			m.write("images/a.tar", string(m.archive(reference, m.installer("archived"))))
			m.says("archived", reference)
		}},
		rule{name: "6/archive/of-another-tag", test: func(m *machine) {
			s := newStore(m, nil)
			reference, _ := s.push("a/b:v1", m.installer("pulled"))
			m.write("images/a.tar", string(m.archive(strings.Replace(reference, ":v1", ":v2", 1), m.installer("archived"))))
			m.says("pulled", reference)
		}},
		rule{name: "6/archive/dot-file", test: func(m *machine) {
			s := newStore(m, nil)
			reference, _ := s.push("a/b:v1", m.installer("pulled"))
			m.write("images/.a.tar", string(m.archive(reference, m.installer("archived"))))
			m.says("pulled", reference)
		}},
		rule{name: "6/archive/broken", test: func(m *machine) {
			s := newStore(m, nil)
			reference, _ := s.push("a/b:v1", m.installer("pulled"))
			m.write("images/a.tar", "this is no archive")
			m.says("pulled", reference)
		}},
		rule{name: "6/archive/no-folder", test: func(m *machine) {
			_ = os.Remove(m.path("images"))
			reference, _ := newStore(m, nil).push("a/b:v1", m.installer("pulled"))
			m.says("pulled", reference)
		}},
	)
}

// firstLayer is the digest of an image's first layer.
func firstLayer(m *machine, image v1.Image) string {
	layers, err := image.Layers()
	if err != nil {
		m.Fatalf("%s", err)
	}
	digest, err := layers[0].Digest()
	if err != nil {
		m.Fatalf("%s", err)
	}
	return digest.String()
}

// tlsRegistry is a test of a mirror whose certificate nobody knows.
func tlsRegistry(config string) func(*machine) {
	return func(m *machine) {
		ca := newCA(m)
		m.write("ca.pem", string(ca.pem))
		s := newStore(m, ca)
		s.push(installerName, m.installer("tls"))
		m.write("registries.yaml", fmt.Sprintf("mirrors:\n  docker.io:\n    endpoint: [%q]\nconfigs:\n  %q:\n    tls: {%s}\n", s.URL, s.host(),
			strings.ReplaceAll(config, "$M", m.dir)))
		m.says("tls", installerName)
	}
}

// credentialProvider is a test of a plugin as the kubelet has them.
func credentialProvider(m *machine) {
	s := newStore(m, nil)
	reference, _ := s.push("a/b:v1", m.installer("hello"))
	s.intercept(wantsPassword)
	m.write("credentialprovider/config.yaml", fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: own
  matchImages: [%q]
  defaultCacheDuration: 1m
  apiVersion: credentialprovider.kubelet.k8s.io/v1
`, s.host()))
	m.writeMode("credentialprovider/bin/own", fmt.Sprintf(`#!/bin/sh
cat >/dev/null
echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Registry",' \
    '"auth":{"%s":{"username":"u","password":"p"}}}'
`, s.host()), 0o700)
	begun := time.Now()
	m.says("hello", reference)
	if took := time.Since(begun); took > time.Minute {
		m.Errorf("it took %s", took)
	}
}
