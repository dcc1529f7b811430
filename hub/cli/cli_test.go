package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
)

func parse(t *testing.T, args ...string) *serveOptions {
	t.Helper()
	opts := &serveOptions{addresses: func() ([]net.Addr, error) { return parseAddresses(t, "127.0.0.1/8", "10.0.0.5/24"), nil }}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	opts.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return opts
}

func parseAddresses(t *testing.T, all ...string) (out []net.Addr) {
	t.Helper()
	for _, address := range all {
		ip, network, err := net.ParseCIDR(address)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, &net.IPNet{IP: ip, Mask: network.Mask})
	}
	return out
}

func TestComplete(t *testing.T) {
	for _, test := range []struct {
		name      string
		args      []string
		inCluster bool

		serverURL, webhookListen, webhookURL string
		err                                  string
	}{
		{
			name: "alone", args: []string{"--server-url=https://hub.example.com/"},
			serverURL: "https://hub.example.com", webhookListen: "127.0.0.1:9443", webhookURL: "https://127.0.0.1:9443",
		},
		{
			name: "alone, another webhook port", args: []string{"--server-url=https://h", "--webhook-listen=127.0.0.1:1234"},
			serverURL: "https://h", webhookListen: "127.0.0.1:1234", webhookURL: "https://127.0.0.1:1234",
		},
		{
			name: "another API server calls in as machines do", args: []string{"--kubeconfig=x", "--server-url=https://hub.example.com:8443"},
			serverURL: "https://hub.example.com:8443", webhookListen: ":9443", webhookURL: "https://hub.example.com:9443",
		},
		{
			name: "in a cluster a Service leads to the webhooks", inCluster: true, args: []string{"--server-url=https://h"},
			serverURL: "https://h", webhookListen: ":9443", webhookURL: "",
		},
		{name: "in a cluster without URL", inCluster: true, err: "--server-url is required in a cluster"},
		{name: "plain HTTP", args: []string{"--server-url=http://h"}, err: `--server-url: must begin with https://, got "http://h"`},
		{name: "URL with a path", args: []string{"--server-url=https://h/drover"},
			err: "--server-url: must be https://<host> or https://<host>:<port>, without a path"},
		{name: "address without port", args: []string{"--listen=h"}, err: `--listen: must be [host]:port, got "h"`},
		{name: "webhook address without port", args: []string{"--webhook-listen=h"}, err: `--webhook-listen: must be [host]:port, got "h"`},
		{name: "unknown way to run Cluster API", args: []string{"--capi=no"}, err: `--capi: must be embedded or external, got "no"`},
		{name: "scheduling of Jobs without Jobs", args: []string{"--node-driver-scheduling={}"}, err: "--node-driver-scheduling needs"},
		{name: "scheduling of Jobs with an unknown field",
			args: []string{"--kubeconfig=/x", "--node-driver-image=hub", `--node-driver-scheduling={"affinity": {}}`},
			err:  `--node-driver-scheduling: must be JSON with the fields nodeSelector, tolerations and priorityClassName of a Pod: json: unknown`},
		{name: "release data from where none can be", args: []string{"--release-data=ftp://h/data.json"},
			err: "--release-data: ftp:// is not supported"},
		{name: "registry that is a URL", args: []string{"--system-default-registry=https://registry.example.com"},
			err: "--system-default-registry: must be a host, with a port or a path where it has one"},
		{name: "installer image that is a URL", args: []string{"--installer-image=https://registry.example.com/installer-"},
			err: "--installer-image: must be the prefix of an image such as rancher/system-agent-installer-"},
		{name: "installer image with a tag", args: []string{"--installer-image=acme/installer-rke2:v1.36.3-rke2r1"},
			err: "--installer-image: must be the prefix"},
		{name: "prefix of an installer image in a registry",
			args:      []string{"--server-url=https://h", "--installer-image=registry.example.com:5000/acme/installer-"},
			serverURL: "https://h", webhookListen: "127.0.0.1:9443", webhookURL: "https://127.0.0.1:9443"},
		{name: "less than no audit log", args: []string{"--audit-log-maxage=-1"}, err: "--audit-log-maxage: must not be negative, got -1"},
		{name: "keys of an API server that is not embedded", args: []string{"--kubeconfig=x", "--encryption-key-dir=/keys"},
			err: "--encryption-key-dir is for the embedded API server"},
		{name: "port of an API server that is not embedded", args: []string{"--kubeconfig=x", "--server-url=https://h", "--api-port=6443"},
			err: "--api-port is for the embedded API server"},
		{name: "no part of a hub runs alone", args: []string{"--providers=bootstrap"},
			err: "--providers without control-plane needs --kubeconfig"},
		{name: "only a part that machines need has a URL", args: []string{"--providers=infrastructure"}, inCluster: true,
			webhookListen: ":9443"},
		{name: "machines need a URL to boot", args: []string{"--providers=bootstrap,infrastructure"}, inCluster: true,
			err: "--server-url is required in a cluster"},
		{name: "nobody to run Cluster API", args: []string{"--capi=external"}, err: "--capi=external needs --kubeconfig"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			if test.inCluster {
				t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
			}
			opts := parse(t, test.args...)
			err := opts.complete()
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("got error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := []string{test.serverURL, test.webhookListen, test.webhookURL}
			if diff := cmp.Diff(want, []string{opts.hub.Settings.ServerURL, opts.hub.WebhookListen, opts.hub.WebhookURL}); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAdvertiseAddress(t *testing.T) {
	for _, test := range []struct {
		name, podIP string
		args        []string
		want, err   string
	}{
		{name: "alone there is nobody to tell"},
		{name: "alone, told to nobody", args: []string{"--advertise-address=10.0.0.7:8443"}, err: "--advertise-address needs --kubeconfig"},
		{name: "any address of this machine", args: []string{"--kubeconfig=x"}, want: "10.0.0.5:8443"},
		{name: "all addresses by name", args: []string{"--kubeconfig=x", "--listen=[::]:1234"}, want: "10.0.0.5:1234"},
		{name: "one address", args: []string{"--kubeconfig=x", "--listen=127.0.0.1:1234"}, want: "127.0.0.1:1234"},
		{name: "a pod", podIP: "10.42.0.5", args: []string{"--kubeconfig=x"}, want: "10.42.0.5:8443"},
		{name: "as told", podIP: "10.42.0.5", args: []string{"--kubeconfig=x", "--advertise-address=hub-1.hubs:8443"}, want: "hub-1.hubs:8443"},
		{name: "no port", args: []string{"--kubeconfig=x", "--advertise-address=10.0.0.7"},
			err: `--advertise-address: must be host:port such as 10.0.0.7:8443, got "10.0.0.7"`},
		{name: "no host", args: []string{"--kubeconfig=x", "--advertise-address=:8443"},
			err: `--advertise-address: must be host:port such as 10.0.0.7:8443, got ":8443"`},
		{name: "drains for less than no time", args: []string{"--drain-time=-1s"}, err: "--drain-delay and --drain-time must not be negative"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			t.Setenv("POD_IP", test.podIP)
			opts := parse(t, append([]string{"--server-url=https://h"}, test.args...)...)
			err := opts.complete()
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil || opts.hub.AdvertiseAddress != test.want {
				t.Errorf("got %q, %v; want %q", opts.hub.AdvertiseAddress, err, test.want)
			}
		})
	}
}

func TestServerURLOfThisMachine(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	opts := parse(t, "--listen=:1234")
	if err := opts.complete(); err != nil || opts.hub.Settings.ServerURL != "https://10.0.0.5:1234" {
		t.Errorf("got %s, %v", opts.hub.Settings.ServerURL, err)
	}
}

// TestNoAddress: a hub that starts before the network does not write its loopback address into machines.
func TestNoAddress(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("POD_IP", "")
	for flag, args := range map[string][]string{"--server-url": nil, "--advertise-address": {"--server-url=https://h", "--kubeconfig=x"}} {
		opts := parse(t, args...)
		opts.addresses = func() ([]net.Addr, error) { return parseAddresses(t, "127.0.0.1/8", "::1/128", "fe80::1/64"), nil }
		if err := opts.complete(); err == nil || !strings.HasPrefix(err.Error(), flag+": must be set: this machine has no address") {
			t.Errorf("%s: got %v", flag, err)
		}
	}
	opts := parse(t, "--server-url=https://127.0.0.1:8443")
	opts.addresses = func() ([]net.Addr, error) { return nil, nil }
	if err := opts.complete(); err != nil {
		t.Error(err)
	}
}

// TestFirstAddress: a machine that has only IPv6 is not known to machines and other replicas by its loopback address.
func TestFirstAddress(t *testing.T) {
	for want, addresses := range map[string][]string{
		"10.0.0.5":    {"127.0.0.1/8", "::1/128", "2001:db8::5/64", "169.254.7.7/16", "10.0.0.5/24", "10.0.0.6/24"},
		"2001:db8::5": {"127.0.0.1/8", "::1/128", "fe80::1/64", "2001:db8::5/64", "fd00::5/64"},
		"<nil>":       {"127.0.0.1/8", "::1/128", "fe80::1/64"},
	} {
		if got := firstAddress(parseAddresses(t, addresses...)); got.String() != want {
			t.Errorf("%v: got %s, want %s", addresses, got, want)
		}
	}
}

func TestTakenPortNamesItsFlag(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for _, flag := range []string{"--listen", "--webhook-listen", "--health-listen", "--metrics-listen"} {
		args := []string{"--listen=127.0.0.1:0", "--webhook-listen=127.0.0.1:0", "--health-listen=0", "--metrics-listen=0",
			flag + "=" + taken.Addr().String()}
		err := parse(t, args...).checkListeners()
		want := "cannot listen on " + taken.Addr().String() + ": bind: address already in use; choose another address with " + flag
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestCommandLineErrorsAreOneLine(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"nonsense"}, "hub: unknown command \"nonsense\" for \"hub\"\n"},
		{[]string{"serve", "--nonsense"}, "hub: unknown flag: --nonsense\n"},
		{[]string{"serve", "--log-level=loud"}, "hub: --log-level \"loud\" is none of debug, info, warn, error\n"},
		{[]string{"serve", "--log-format=xml"}, "hub: --log-format \"xml\" is neither text nor json\n"},
		{
			[]string{"serve", "--providers=bootstrap,core"},
			"hub: --providers: must be a list of bootstrap, control-plane, infrastructure, got \"core\"\n",
		},
		{[]string{"serve", "--providers="}, "hub: --providers: must name at least one of bootstrap, control-plane, infrastructure\n"},
		{[]string{"serve", "--capi=no"}, "hub: --capi: must be embedded or external, got \"no\"\n"},
		{[]string{"node-command"}, "hub: node-command needs one argument: <namespace>/<cluster>\n"},
		{[]string{"node-command", "a", "--etcd"}, "hub: \"a\" is not <namespace>/<cluster>\n"},
		{[]string{"node-command", "a/b"}, "hub: a machine needs a role: --etcd, --controlplane, --worker, or several of them\n"},
		{
			[]string{"node-command", "a/b", "--etcd", "--data-dir=/nowhere"},
			"hub: there is no hub's kubeconfig at /nowhere/admin.kubeconfig; name another --data-dir or a --kubeconfig\n",
		},
		{
			[]string{"node-command", "a/b", "--control-plane", "--data-dir=/nowhere"},
			"hub: there is no hub's kubeconfig at /nowhere/admin.kubeconfig; name another --data-dir or a --kubeconfig\n",
		},
		{
			[]string{"node-command", "a/b", "--etcd", "--data-dir=/dev/null"},
			"hub: reading the hub's kubeconfig: open /dev/null/admin.kubeconfig: not a directory\n",
		},
		{[]string{"plan", "diff"}, "hub: plan diff needs either <namespace>/<cluster> or -f with a manifest\n"},
		{[]string{"plan", "diff", "a/b", "-f", "c"}, "hub: plan diff needs either <namespace>/<cluster> or -f with a manifest\n"},
		{[]string{"plan", "diff", "a/b", "-o", "yaml"}, "hub: --output \"yaml\" is neither table nor json\n"},
		{[]string{"timeline"}, "hub: timeline needs one argument: <namespace>/<cluster>\n"},
		{[]string{"timeline", "a"}, "hub: \"a\" is not <namespace>/<cluster>\n"},
		{[]string{"status", "a/b/c"}, "hub: \"a/b/c\" is not <namespace>/<cluster>\n"},
	} {
		var stdout, stderr bytes.Buffer
		if code := Main(test.args, &stdout, &stderr); code != 1 {
			t.Errorf("%v: exit code %d, want 1", test.args, code)
		}
		if diff := cmp.Diff(test.want, stderr.String()); diff != "" {
			t.Errorf("%v: -want +got:\n%s", test.args, diff)
		}
	}
}

func TestNodeCommandArguments(t *testing.T) {
	opts := &nodeOptions{
		etcd: true, worker: true, nodeName: "it's", internalAddress: "10.0.0.1",
		labels: []string{"a=b", "c=d e"}, taints: []string{"k=v:NoSchedule"},
	}
	want := `--etcd --worker --node-name 'it'\''s' --internal-address '10.0.0.1' --label 'a=b' --label 'c=d e' --taint 'k=v:NoSchedule'`
	if got := strings.Join(opts.scriptArgs(), " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLessChatter(t *testing.T) {
	var out bytes.Buffer
	log := func(level slog.Level, record slog.Level, message string) string {
		out.Reset()
		logger := slog.New(&lessChatter{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})}).With("a", "b").WithGroup("c")
		logger.Log(t.Context(), record, message)
		return out.String()
	}
	for _, test := range []struct {
		level, record slog.Level
		message       string
		want          bool
	}{
		{slog.LevelInfo, slog.LevelInfo, "Starting EventSource", false},
		{slog.LevelDebug, slog.LevelInfo, "Starting EventSource", true},
		{slog.LevelInfo, slog.LevelError, "Starting EventSource", true},
		{slog.LevelInfo, slog.LevelInfo, "Machine has joined", true},
		{slog.LevelWarn, slog.LevelInfo, "Machine has joined", false},
	} {
		if got := log(test.level, test.record, test.message) != ""; got != test.want {
			t.Errorf("%v: logged %v", test, got)
		}
	}
}

// TestLogOfDisconnectedClusters: that a reconcile waits for the connection to a cluster is for debugging.
func TestLogOfDisconnectedClusters(t *testing.T) {
	down, other := fmt.Errorf("error getting client: %w", clustercache.ErrClusterNotConnected), errors.New("a conflict")
	const failed = "Reconciler error"
	for _, test := range []struct {
		level   slog.Level
		message string
		err     error
		want    bool
	}{
		{slog.LevelInfo, failed, down, false},
		{slog.LevelInfo, failed, kerrors.NewAggregate([]error{down, down}), false},
		{slog.LevelInfo, failed, kerrors.NewAggregate([]error{down, other}), true},
		{slog.LevelInfo, failed, other, true},
		{slog.LevelInfo, "Connecting failed", down, true},
		{slog.LevelDebug, failed, down, true},
	} {
		var out bytes.Buffer
		handler := &lessChatter{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: test.level})}
		logr.FromSlogHandler(handler).WithValues("a", "b").Error(test.err, test.message, "reconcileID", "c")
		if got := out.Len() > 0; got != test.want {
			t.Errorf("%v: logged %v", test, got)
		}
	}
}

// TestLogOfReferences: a reference to an object is a string, of whichever type the caller has it.
func TestLogOfReferences(t *testing.T) {
	for _, test := range []struct {
		ref  any
		want string
	}{
		{"fleet/one", "fleet/one"},
		{types.NamespacedName{Namespace: "fleet", Name: "one"}, "fleet/one"},
		{types.NamespacedName{Name: "one"}, "one"},
		{klog.KRef("fleet", "one"), "fleet/one"},
		{klog.KRef("", "one"), "one"},
	} {
		var out bytes.Buffer
		handler, err := (&logOptions{level: "info", format: "json"}).handler(&out)
		if err != nil {
			t.Fatal(err)
		}
		logr.FromSlogHandler(handler).WithValues("Cluster", test.ref).Error(errors.New("broken"), "Something failed", "Machine", test.ref)
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil || line["Cluster"] != test.want || line["Machine"] != test.want ||
			line["error"] != "broken" {
			t.Errorf("%T: %v: %s", test.ref, err, out.String())
		}
	}
}

func TestAuditLogPath(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, test := range []struct {
		name, want string
		args       []string
	}{
		{name: "alone", args: []string{"--data-dir=/data"}, want: "/data/audit/audit.log"},
		{name: "another file", args: []string{"--data-dir=/data", "--audit-log-path=/var/log/hub/audit.log"}, want: "/var/log/hub/audit.log"},
		{name: "turned off", args: []string{"--data-dir=/data", "--audit-log-path=none"}, want: ""},
		{name: "another API server", args: []string{"--kubeconfig=x"}, want: ""},
		{name: "to the standard output", args: []string{"--kubeconfig=x", "--audit-log-path=-"}, want: "-"},
	} {
		opts := parse(t, append(test.args, "--server-url=https://h")...)
		if err := opts.complete(); err != nil || opts.hub.Audit.Path != test.want {
			t.Errorf("%s: %q, want %q: %v", test.name, opts.hub.Audit.Path, test.want, err)
		}
	}
}
