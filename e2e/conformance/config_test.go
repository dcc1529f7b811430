//go:build conformance

package conformance

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const connectionInfo = `{"kubeConfig":"apiVersion: v1","namespace":"n","secretName":"s"}`

// accepts runs a command of the agent on a file.
func accepts(m *machine, command, name, text string, mode os.FileMode) bool {
	path := filepath.Join("check", name)
	m.writeMode(path, text, mode)
	return m.command(command, m.path(path)).Run() == nil
}

// config is a rule about what validate-config takes.
func config(name string, want bool, file, text string, mode os.FileMode, better string) rule {
	return validates("1.3/config/"+name, "validate-config", want, file, text, mode, better)
}

func connection(name string, want bool, file, text string, mode os.FileMode) rule {
	return validates("1.4/connection/"+name, "validate-connection", want, file, text, mode, "")
}

func validates(name, command string, want bool, file, text string, mode os.FileMode, better string) rule {
	return rule{name: name, better: better, test: func(m *machine) {
		if got := accepts(m, command, file, text, mode); got != want {
			m.Errorf("%s of %q with mode %o: accepted is %t", command, file, mode, got)
		}
	}}
}

func init() {
	const remote = "remoteEnabled: true\nconnectionInfoFile: /c/info.json\n"
	const local = "localEnabled: true\nlocalPlanDirectory: /var/lib/rancher/agent/plans\n"
	rules = append(rules,
		config("yaml", true, "config.yaml", remote, 0o600, ""),
		config("json", true, "config.json", `{"remoteEnabled":true,"connectionInfoFile":"/c/info.json"}`, 0o600, ""),
		config("json-then-something", true, "config.json", `{"remoteEnabled":true,"connectionInfoFile":"/c/info.json"} x`, 0o600, ""),
		config("yml", true, "config.yml", remote, 0o600, "B22"),
		config("other-ending", false, "config.conf", remote, 0o600, ""),
		config("local", true, "config.yaml", local, 0o600, ""),
		config("both-sources", true, "config.yaml", remote+local, 0o600, ""),
		config("no-source", false, "config.yaml", "workDirectory: /var/lib/rancher/agent/work\n", 0o600, ""),
		config("remote-without-connection", false, "config.yaml", "remoteEnabled: true\n", 0o600, ""),
		config("local-without-folder", false, "config.yaml", "localEnabled: true\n", 0o600, ""),
		config("unknown-keys", true, "config.yaml", remote+"labels: {a: b}\n", 0o600, ""),
		config("not-yaml", false, "config.yaml", "a: [", 0o600, ""),
		config("mode-0644", false, "config.yaml", remote, 0o644, ""),
		config("mode-0400", false, "config.yaml", remote, 0o400, ""),
		connection("complete", true, "info.json", connectionInfo, 0o600),
		connection("while-it-is-checked", true, "rancher2_connection_info.json.tmp", connectionInfo, 0o600),
		connection("yaml", true, "info.yaml", "kubeConfig: k\nnamespace: n\nsecretName: s\n", 0o600),
		connection("no-kubeconfig", false, "info.json", `{"namespace":"n","secretName":"s"}`, 0o600),
		connection("no-namespace", false, "info.json", `{"kubeConfig":"k","secretName":"s"}`, 0o600),
		connection("no-secret", false, "info.json", `{"kubeConfig":"k","namespace":"n"}`, 0o600),
		connection("error-page", false, "info.json", `{"message":"unauthorized"}`, 0o600),
		connection("mode-0644", false, "info.json", connectionInfo, 0o644),
		rule{name: "1.3/config/other-owner", test: func(m *machine) {
			m.write("check/config.yaml", remote)
			if err := os.Chown(m.path("check/config.yaml"), 1, 1); err != nil {
				m.Fatalf("%s", err)
			}
			if m.command("validate-config", m.path("check/config.yaml")).Run() == nil {
				m.Errorf("a file of another user is accepted")
			}
		}},
		rule{name: "1.3/config/through-a-link", test: func(m *machine) {
			m.write("check/real.yaml", remote)
			if err := os.Symlink("real.yaml", m.path("check/config.yaml")); err != nil {
				m.Fatalf("%s", err)
			}
			if m.command("validate-config", m.path("check/config.yaml")).Run() != nil {
				m.Errorf("a link to a good file is refused")
			}
		}},
		rule{name: "1.3/config/missing", test: func(m *machine) {
			if m.command("validate-config", m.path("check/config.yaml")).Run() == nil {
				m.Errorf("a file that is not there is accepted")
			}
		}},
		rule{name: "1.1/cli/version", test: func(m *machine) {
			out, err := m.command("--version").Output()
			if err != nil || !strings.Contains(string(out), "system-agent version ") {
				m.Errorf("--version says %q, %v", out, err)
			}
		}},
		rule{name: "1.1/cli/version-without-root", better: "B22", test: asNobody},
		rule{name: "1.1/cli/unknown-command", test: func(m *machine) {
			if m.command("dance").Run() == nil {
				m.Errorf("an unknown command ends with 0")
			}
		}},
		rule{name: "1.1/signal/sigterm-ends-at-rest", test: endsWith(syscall.SIGTERM)},
		rule{name: "1.1/signal/sigint-ends-at-rest", test: endsWith(syscall.SIGINT)},
		rule{name: "1.2/env/loglevel-unknown", test: func(m *machine) {
			m.env = []string{"CATTLE_LOGLEVEL=loud"}
			m.start()
			m.until("the end of the agent", func(state) bool { return m.crashes() > 0 })
		}},
		rule{name: "1.2/env/strict-needs-a-ca", test: func(m *machine) {
			m.env = []string{"CATTLE_AGENT_STRICT_VERIFY=TRUE", "SSL_CERT_FILE=" + m.path("roots.pem")}
			m.write("roots.pem", string(m.proxy.ca()))
			m.connect(m.proxy.URL, nil, m.token())
			m.deliver(m.files(m.file("f", "x")))
			m.start()
			m.silent(5*time.Second, "the agent connects without a CA", func(state) bool { return m.proxy.sawToken() })
		}},
		rule{name: "1.2/env/strict-with-a-ca", test: func(m *machine) {
			m.env = []string{"CATTLE_AGENT_STRICT_VERIFY=true"}
			m.run(m.files(m.file("f", "x")))
		}},
		rule{name: "1.4/rbac/only-what-the-role-allows", test: onlyAllowedRequests},
		rule{name: "3.2/connect/no-ca-means-the-roots-of-the-machine", test: func(m *machine) {
			m.env = []string{"SSL_CERT_FILE=" + m.path("roots.pem")}
			m.write("roots.pem", string(m.proxy.ca()))
			m.connect(m.proxy.URL, nil, m.token())
			m.run(m.files(m.file("f", "x")))
		}},
		rule{name: "3.2/connect/wrong-ca-trusts-nobody-else", better: "S3", test: func(m *machine) {
			m.env = []string{"SSL_CERT_FILE=" + m.path("roots.pem")}
			m.write("roots.pem", string(m.proxy.ca()))
			m.connect(m.proxy.URL, newCA(m).pem, m.token())
			m.deliver(m.files(m.file("f", "x")))
			m.start()
			m.silent(8*time.Second, "the agent trusts an authority that is not configured",
				func(state) bool { return m.exists("f") || m.proxy.sawToken() })
		}},
		rule{name: "3.2/connect/through-a-proxy", test: func(m *machine) {
			forward := newForwardProxy(m)
			m.env = []string{"HTTPS_PROXY=" + forward.URL}
			m.connect(strings.Replace(m.proxy.URL, "127.0.0.1", "hub.example.com", 1), m.proxy.ca(), m.token())
			m.run(m.files(m.file("f", "x")))
			if forward.count() == 0 {
				m.Errorf("the proxy of the environment was not used")
			}
		}},
		rule{name: "3.2/connect/hub-comes-later", test: func(m *machine) {
			m.proxy.leave()
			sum := m.deliver(m.files(m.file("f", "x")))
			m.start()
			time.Sleep(3 * time.Second)
			m.proxy.back()
			m.until("success", func(s state) bool { return s.applied(sum) })
		}},
		rule{name: "3.2/connect/never-ends-because-the-hub-is-away", better: "B5", test: func(m *machine) {
			m.proxy.leave()
			m.start()
			m.silent(10*time.Second, "the agent ended", func(state) bool { return m.crashes() > 0 })
		}},
		rule{name: "3.2/connect/new-connection-info-without-restart", better: "3.2", test: func(m *machine) {
			good := m.read("rancher2_connection_info.json")
			m.connect(m.proxy.URL, newCA(m).pem, m.token())
			sum := m.deliver(m.files(m.file("f", "x")))
			m.start()
			m.until("an attempt to connect", func(state) bool { return m.proxy.connections.Load() > 0 })
			m.write("rancher2_connection_info.json", good)
			m.until("success", func(s state) bool { return s.applied(sum) })
			if m.crashes() > 0 {
				m.Errorf("the agent ended")
			}
		}},
	)
}

// asNobody runs --version as another user, who must be able to read the binary.
func asNobody(m *machine) {
	raw, err := os.ReadFile(options.agent)
	if err != nil {
		m.Fatalf("%s", err)
	}
	if err := os.Chmod(m.dir, 0o755); err != nil {
		m.Fatalf("%s", err)
	}
	writeProgram(m, "agent", string(raw))
	cmd := m.command("--version")
	cmd.Path, cmd.Dir = m.path("agent"), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		m.Errorf("--version says %q, %s", out, err)
	}
}

// writeProgram writes a program that is executed next. A process that another rule starts meanwhile would have the file open for writing
// for a moment, in which nobody can execute it.
func writeProgram(m *machine, name, content string) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	m.writeMode(name, content, 0o755)
}

func endsWith(signal syscall.Signal) func(*machine) {
	return func(m *machine) {
		m.run(m.files(m.file("f", "x")))
		took, code := m.signal(signal)
		if took > 45*time.Second || code == -1 {
			m.Errorf("the agent ended with %d after %s", code, took)
		}
	}
}

// onlyAllowedRequests applies a plan under each protocol and looks at the requests.
func onlyAllowedRequests(m *machine) {
	m.run(both(m.files(m.file("f", "x")), instructions(sh("a", "echo a"))))
	m.run(instructions(sh("a", "echo b")), map[string]string{"plan-state": "pending"})
	collection := "/api/v1/namespaces/" + m.namespace + "/secrets"
	var puts, watches int
	for _, r := range m.proxy.seen() {
		selected := r.url.Query().Get("fieldSelector") == "metadata.name="+secretName
		switch {
		case r.method == http.MethodGet && r.url.Path == collection && selected:
			if r.isWatch() {
				watches++
			}
		case r.method == http.MethodGet && r.url.Path == collection+"/"+secretName:
		case r.method == http.MethodPut && r.url.Path == collection+"/"+secretName:
			puts++
		// anybody may
		case r.method == http.MethodGet && slices.Contains([]string{"/version", "/cacerts", "/api", "/apis", "/api/v1"}, r.url.Path):
		default:
			m.Errorf("%s %s", r.method, r.url)
		}
	}
	if puts == 0 || watches == 0 {
		m.Errorf("%d writes and %d watches", puts, watches)
	}
}
