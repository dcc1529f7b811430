package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// write lays out a configuration folder and returns its main file.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	main := filepath.Join(t.TempDir(), "config.yaml")
	for name, text := range files {
		file := filepath.Join(filepath.Dir(main), name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return main
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestLoad(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files map[string]string
		args  []string
		env   []string
		role  Role
		want  func(Config) any
		equal any
	}{
		{
			name: "without files everything has its default", want: func(c Config) any { return []any{c.DataDir, c.HTTPSPort, c.ClusterCIDR} },
			equal: []any{"/var/lib/rancher/k3s", 6443, []string{"10.42.0.0/16"}},
		},
		{
			name: "a later file wins over an earlier one",
			files: map[string]string{"config.yaml": "token: a\nnode-label: [x=1]", "config.yaml.d/50-rancher.yaml": `{"token": "b"}`,
				"config.yaml.d/10.yaml": "token: c\nnode-label: [y=1, z=2]"},
			want: func(c Config) any { return []any{c.Token, c.NodeLabel} }, equal: []any{"b", []string{"y=1", "z=2"}},
		},
		{
			name:  "a key with a plus adds",
			files: map[string]string{"config.yaml": "kubelet-arg: a=1", "config.yaml.d/1.yaml": "kubelet-arg+: [b=2]"},
			want:  func(c Config) any { return c.KubeletArg }, equal: []string{"a=1", "b=2"},
		},
		{
			name:  "the command line replaces what files say, files replace the environment",
			files: map[string]string{"config.yaml": "token: file\nnode-label: [x=1]"},
			args:  []string{"--node-label=a=1", "--node-label", "b=2", "--cluster-init"}, env: []string{"K3S_TOKEN", "env", "K3S_NODE_NAME", "n1"},
			want:  func(c Config) any { return []any{c.Token, c.NodeLabel, c.ClusterInit, c.NodeName} },
			equal: []any{"file", []string{"a=1", "b=2"}, true, "n1"},
		},
		{
			name: "numbers and booleans may be texts, addresses may be separated by commas",
			files: map[string]string{"config.yaml": `{"disable-scheduler": "true", "https-listen-port": "7443", "etcd-snapshot-retention": 3,
				"node-ip": "10.0.0.1,fd00::1", "tls-san": ["a, b", "c"]}`},
			want: func(c Config) any {
				return []any{c.DisableScheduler, c.HTTPSPort, c.AdvertisePort, c.NodeIP, c.TLSSAN}
			},
			equal: []any{true, 7443, 7443, []string{"10.0.0.1", "fd00::1"}, []string{"a", "b", "c"}},
		},
		{
			name:  "restoring, with snapshots in a folder of their own",
			files: map[string]string{"config.yaml": "etcd-snapshot-dir: /s\netcd-snapshot-retention: 3\netcd-s3: true"},
			args:  []string{"--cluster-reset", "--cluster-reset-restore-path=db/snapshots/a", "--etcd-s3=false"},
			want: func(c Config) any {
				return []any{c.ClusterReset, c.ClusterResetRestorePath, c.EtcdSnapshotDir, c.EtcdSnapshotRetention, c.EtcdSnapshotCron}
			},
			equal: []any{true, "db/snapshots/a", "/s", 3, "0 */12 * * *"},
		},
		{
			name: "an agent", role: Agent, files: map[string]string{"config.yaml": "server: https://10.0.0.1:6443/\ntoken: t"},
			want: func(c Config) any { return c.Server }, equal: "https://10.0.0.1:6443",
		},
		{
			name: "the variables of a server mean nothing to an agent", role: Agent, args: []string{"--server=https://a:1", "--token", "t"},
			env: []string{"K3S_CLUSTER_INIT", "true"}, want: func(c Config) any { return c.ClusterInit }, equal: false,
		},
		{
			name: "keys without effect are named", files: map[string]string{"config.yaml": "flannel-backend: vxlan\nselinux: true\ntoken: a"},
			want: func(c Config) any { return c.Ignored() }, equal: []string{"flannel-backend", "selinux"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			role := tc.role
			if role == "" {
				role = Server
			}
			c, err := Load(role, write(t, tc.files), tc.args, env(tc.env...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.equal, tc.want(c)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestS3(t *testing.T) {
	minute := metav1.Duration{Duration: time.Minute}
	file := write(t, map[string]string{"config.yaml": "etcd-s3: true\netcd-s3-bucket: b\netcd-s3-secret-key: file\netcd-snapshot-retention: 7\n" +
		"token: t\netcd-s3-timeout: 1m", "config.yaml.d/50-rancher.yaml": `{"etcd-s3-folder": "f", "etcd-s3-skip-ssl-verify": true}`})
	fromFile := S3{Endpoint: "s3.amazonaws.com", Region: "us-east-1", Bucket: "b", SecretKey: "file", AccessKey: "env",
		SessionToken: "session",
		Folder:       "f", SkipSSLVerify: true, Timeout: minute, Retention: 7}
	getenv := env("AWS_ACCESS_KEY_ID", "env", "AWS_SECRET_ACCESS_KEY", "env", "AWS_SESSION_TOKEN", "session")
	changed := fromFile
	changed.Endpoint, changed.Insecure, changed.SecretKey, changed.Retention = "e:9000", true, "flag", 0
	for _, tc := range []struct {
		flags map[string]string
		want  *S3
	}{
		{nil, &fromFile},
		{map[string]string{"etcd-s3": "false"}, nil},
		{map[string]string{"etcd-s3-endpoint": "e:9000", "etcd-s3-insecure": "true", "etcd-s3-secret-key": "flag",
			"etcd-snapshot-retention": "0"}, &changed},
	} {
		got, err := CommandS3(file, tc.flags, getenv)
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%v: %v %s", tc.flags, err, diff)
		}
	}
	for _, tc := range []struct {
		args []string
		want *S3
	}{
		{nil, &fromFile}, {[]string{"--etcd-s3=false"}, nil}, {[]string{"--etcd-disable-snapshots"}, nil},
		{[]string{"--etcd-disable-snapshots", "--cluster-reset", "--cluster-reset-restore-path=a"}, &fromFile},
	} {
		c, err := Load(Server, file, tc.args, getenv)
		if diff := cmp.Diff(tc.want, c.S3); diff != "" || err != nil || len(c.Ignored()) > 0 {
			t.Errorf("%v: %v %s", tc.args, err, diff)
		}
	}
	if text := fmt.Sprintf("%v %+v", fromFile, &fromFile); text != "s3://b/f at s3.amazonaws.com s3://b/f at s3.amazonaws.com" {
		t.Errorf("printed %s", text)
	}
	for flag, want := range map[string]bool{"--etcd-s3-secret-key": true, "--s3-access-key": true, "-t": true, "--etcd-token": true,
		"--etcd-s3-bucket": false, "--data-dir": false} {
		if IsSecret(flag) != want {
			t.Errorf("%s is a secret: %v", flag, !want)
		}
	}
}

func TestLoadFaults(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		role       Role
		args       []string
		want       string
	}{
		{name: "unknown key", file: "bogus: 1", want: "config.yaml: bogus: no such configuration key"},
		{name: "all of them", file: "bogus: 1\nalso: 2\nbogus+: 3",
			want: "also: no such configuration key\nbogus+: no such configuration key\nbogus: no such"},
		{name: "unknown flag", args: []string{"--bogus=1"}, want: "--bogus: no such configuration key"},
		{name: "server key on an agent", role: Agent, file: "cluster-init: true", want: "cluster-init: no such configuration key for an agent"},
		{name: "wrong type", file: "cluster-init: maybe", want: `cluster-init: strconv.ParseBool: parsing "maybe"`},
		{name: "map", file: "node-label: {a: b}", want: "node-label: takes no value of type map[string]interface {}"},
		{name: "nested list", file: "node-label: [[a]]", want: "node-label: a list may not hold lists"},
		{name: "list for a text", file: "token: [a, b]", want: "token: takes one value, not 2"},
		{name: "flag without value", args: []string{"--token"}, want: "--token: needs a value"},
		{name: "stray argument", args: []string{"token"}, want: `unexpected argument "token"`},
		{name: "agent without server", role: Agent, file: "token: a", want: "server: an agent needs the URL of a server"},
		{name: "joining without token", file: "server: https://a:6443", want: "token: a node that joins needs one"},
		{name: "plain http", file: "server: http://a:6443\ntoken: a", want: "is no https URL"},
		{name: "first server without etcd", file: "disable-etcd: true", want: "disable-etcd: the first server of a cluster needs etcd"},
		{name: "restoring a server that joins", file: "server: https://a:6443\ntoken: a", args: []string{"--cluster-reset"},
			want: "cluster-reset: remove server from the configuration first"},
		{name: "restoring without reset", args: []string{"--cluster-reset-restore-path=/x"}, want: "means something only with cluster-reset"},
		{name: "time without a unit", file: "etcd-s3-timeout: 5", want: "etcd-s3-timeout: time: missing unit"},
		{name: "external datastore", file: "datastore-endpoint: mysql://x", want: "datastore-endpoint: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			role := tc.role
			if role == "" {
				role = Server
			}
			_, err := Load(role, write(t, map[string]string{"config.yaml": tc.file}), tc.args, env())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want something with %q", err, tc.want)
			}
			if strings.HasPrefix(tc.name, "unknown") && !errors.Is(err, ErrUnknownKey) {
				t.Errorf("%v is not ErrUnknownKey", err)
			}
		})
	}
}

func TestTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Server, write(t, nil), []string{"--token-file", file}, env())
	if err != nil || c.Token != "secret" {
		t.Errorf("got %q, %v", c.Token, err)
	}
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte("token: a\nnode-label+: [x=1]"))
	f.Add([]byte(`{"cluster-init": true, "kube-apiserver-arg": ["a=b"]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v := values{}
		if v.merge(raw, Server) != nil {
			return
		}
		for name := range v {
			if _, ok := keys[name]; !ok {
				t.Errorf("key %q got through", name)
			}
		}
	})
}
