package render

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/plans"
)

// rotation is the instruction of a CertificateRotation for a machine, and the plan that it was added to.
func rotation(in Inputs, services ...operationv1.CertificateService) (plans.Instruction, plans.Plan) {
	op := &operationv1.CertificateRotation{}
	op.UID, op.Spec.Services = "uid", services
	plan, _ := Plan(in)
	with := WithTask(in.Cluster, in.Machine, plan, op, operation.Task{Step: operationv1.StepRotate, Name: operation.TaskRotateCertificates})
	return with.Instructions[len(with.Instructions)-1], plan
}

func TestRotateCertificates(t *testing.T) {
	const state = "/var/lib/rancher/capr/certificate-rotation/"
	for name, tc := range map[string]struct {
		version, roles string
		services       []operationv1.CertificateService
		change         func(*Inputs)
		unit           string
		certificates   []string
		removals       []string
		command        []string
	}{
		"server of k3s": {version: k3s, roles: "ecw", unit: "k3s", command: []string{"k3s", "certificate", "rotate"},
			certificates: []string{"/server/tls/client-admin.crt", "/server/tls/client-kube-apiserver.crt", "/server/tls/serving-kube-apiserver.crt",
				"/server/tls/client-auth-proxy.crt", "/server/tls/client-k3s-cloud-controller.crt", "/server/tls/client-controller.crt",
				"/server/tls/etcd/client.crt", "/server/tls/etcd/server-client.crt", "/server/tls/etcd/peer-server-client.crt",
				"/agent/client-k3s-controller.crt", "/agent/client-kube-proxy.crt", "/agent/client-kubelet.crt", "/agent/serving-kubelet.crt",
				"/server/tls/client-scheduler.crt", "/server/tls/client-supervisor.crt",
				"/server/tls/kube-controller-manager/kube-controller-manager.crt", "/server/tls/kube-scheduler/kube-scheduler.crt"},
			removals: []string{"/server/tls/kube-controller-manager/kube-controller-manager.crt",
				"/server/tls/kube-controller-manager/kube-controller-manager.key", "/server/tls/kube-scheduler/kube-scheduler.crt",
				"/server/tls/kube-scheduler/kube-scheduler.key"}},
		"one service on RKE2": {version: rke2, roles: "ec", services: []operationv1.CertificateService{"scheduler"}, unit: "rke2-server",
			command:      []string{"rke2", "certificate", "rotate", "--service", "scheduler"},
			certificates: []string{"/server/tls/client-scheduler.crt", "/server/tls/kube-scheduler/kube-scheduler.crt"},
			removals: []string{"/server/tls/kube-scheduler/kube-scheduler.crt", "/server/tls/kube-scheduler/kube-scheduler.key",
				"/agent/pod-manifests/kube-scheduler.yaml", "/server/manifests/rke2-*.yaml"}},
		"a certificate of the user's": {version: k3s, roles: "c", services: []operationv1.CertificateService{"scheduler"}, unit: "k3s",
			change: func(in *Inputs) {
				in.Cluster.Spec.MachineGlobalConfig = config(t, `{"kube-scheduler-arg": ["tls-cert-file=/etc/mine.crt"]}`)
			},
			command:      []string{"k3s", "certificate", "rotate", "--service", "scheduler"},
			certificates: []string{"/server/tls/client-scheduler.crt"}},
		"etcd only": {version: k3s, roles: "e", services: []operationv1.CertificateService{"etcd", "scheduler"}, unit: "k3s",
			command:      []string{"k3s", "certificate", "rotate", "--service", "etcd"},
			certificates: []string{"/server/tls/etcd/client.crt", "/server/tls/etcd/server-client.crt", "/server/tls/etcd/peer-server-client.crt"}},
		"worker": {version: rke2, roles: "w", unit: "rke2-agent", certificates: []string{"/agent/client-kube-proxy.crt",
			"/agent/client-kubelet.crt", "/agent/serving-kubelet.crt", "/agent/client-rke2-controller.crt"}},
		"the supervisor": {version: k3s, roles: "ec", services: []operationv1.CertificateService{"k3s-server"}, unit: "k3s",
			command: []string{"k3s", "certificate", "rotate", "--service", "k3s-server"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := machineOf(t, tc.version, "a", tc.roles)
			if tc.change != nil {
				tc.change(&in)
			}
			got, plan := rotation(in, tc.services...)
			below := func(paths []string) string {
				var out []string
				for _, p := range paths {
					out = append(out, in.Cluster.names().DataDir+p)
				}
				return strings.Join(out, "\n")
			}
			want := append([]string{"-c", rotateCertificatesSh, "rotate-certificates", state + hexOf("DROVER_OPERATION=uid/Rotate"), tc.unit,
				rotationSeconds, below(tc.certificates), below(tc.removals)}, tc.command...)
			if diff := cmp.Diff(want, got.Args); diff != "" || got.Command != "/bin/sh" || got.Name != RestartInstruction {
				t.Errorf("%s %s (-want +got):\n%s", got.Name, got.Command, diff)
			}
			with := plan
			with.Instructions = append(slices.Clone(plan.Instructions), got)
			if impact := ImpactOf(plan, with); impact != ImpactRestart {
				t.Errorf("its impact is %s", impact)
			}
		})
	}
	windows := machineOf(t, rke2, "w", "w")
	windows.Machine.OS = "windows"
	got, _ := rotation(windows)
	if diff := cmp.Diff([]string{"-NonInteractive", "-Command", "Restart-Service -Name rke2"}, got.Args); diff != "" ||
		got.Command != "powershell.exe" {
		t.Errorf("%s (-want +got):\n%s", got.Command, diff)
	}
}

func TestRotatedProbes(t *testing.T) {
	in := machineOf(t, rke2, "a", "ec")
	in.Cluster.Spec.MachineGlobalConfig = config(t,
		`{"kube-scheduler-arg": ["tls-cert-file=/etc/mine.crt"], "kube-controller-manager-arg": ["cert-dir=/etc/mine"]}`)
	if diff := cmp.Diff([]string{"kube-apiserver", "kube-controller-manager"}, RotatedProbes(in.Cluster, in.Machine)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Agents watch the files that the hub asks about, except those of components that probes see.
func TestWatchedCertificates(t *testing.T) {
	for name, tc := range map[string]struct {
		version, roles string
		change         func(*Inputs)
		want           []string
	}{
		"worker": {version: k3s, roles: "w", want: []string{"/var/lib/rancher/k3s/agent/client-k3s-controller.crt k3s-controller",
			"/var/lib/rancher/k3s/agent/client-kube-proxy.crt kube-proxy", "/var/lib/rancher/k3s/agent/client-kubelet.crt kubelet",
			"/var/lib/rancher/k3s/agent/serving-kubelet.crt kubelet"}},
		"etcd only, elsewhere": {version: rke2, roles: "e", change: func(in *Inputs) { in.Cluster.Spec.DataDirectories.K8sDistro = "/data/" },
			want: []string{"/data/agent/client-kube-proxy.crt kube-proxy", "/data/agent/client-kubelet.crt kubelet",
				"/data/agent/client-rke2-controller.crt rke2-controller", "/data/agent/serving-kubelet.crt kubelet",
				"/data/server/tls/client-supervisor.crt supervisor", "/data/server/tls/etcd/client.crt etcd",
				"/data/server/tls/etcd/peer-server-client.crt etcd", "/data/server/tls/etcd/server-client.crt etcd"}},
		"unmanaged": {version: k3s, roles: "w", change: func(in *Inputs) { in.Cluster.Spec.UnmanagedConfig = true }},
		"Windows":   {version: rke2, roles: "w", change: func(in *Inputs) { in.Machine.OS = "windows" }},
	} {
		t.Run(name, func(t *testing.T) {
			in := machineOf(t, tc.version, "a", tc.roles)
			if tc.change != nil {
				tc.change(&in)
			}
			var got []string
			for file, service := range WatchedCertificates(in.Cluster, in.Machine) {
				got = append(got, file+" "+service)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, version := range []string{k3s, rke2} {
		in := machineOf(t, version, "a", "ecw")
		files := plans.CertificateFiles()
		for file := range WatchedCertificates(in.Cluster, in.Machine) {
			name := strings.TrimPrefix(file, in.Cluster.names().DataDir+"/")
			probed := slices.ContainsFunc(components, func(c component) bool { return strings.HasPrefix(name, "server/tls/"+c.name+"/") })
			if !slices.Contains(files, name) && !probed {
				t.Errorf("agents do not watch %s", name)
			}
		}
	}
}

// The programs on a machine of these tests. A start makes certificates that are missing, and those of the agent in any case.
var rotationPrograms = map[string]string{
	"systemctl": `#!/bin/sh
verb= unit=
for a; do case $a in -*) ;; *) if [ -z "$verb" ]; then verb=$a; else unit=$a; fi ;; esac; done
echo "$verb $unit" >>"$W/log"
start() {
    [ ! -e "$W/broken" ] || return 0
    [ ! -e "$W/running" ] || return 0
    n=$(cat "$W/n"); n=$((n + 1)); echo "$n" >"$W/n"
    while read -r file; do
        case $file in */agent/*) rm -f "$file" ;; esac
        [ -e "$file" ] || echo "$file $n" >"$file"
    done <"$W/certificates"
    : >"$W/running"
}
case $verb in
    stop) rm -f "$W/running" ;;
    start) start ;;
    restart) rm -f "$W/running"; start ;;
    is-active) [ -e "$W/running" ] ;;
esac
`,
	"k3s": `#!/bin/sh
echo "k3s $*" >>"$W/log"
[ ! -e "$W/refuses" ] || { echo "service is not recognized" >&2; exit 1; }
[ ! -e "$W/running" ] || { echo "k3s runs" >&2; exit 1; }
[ -e "$W/lazy" ] || while read -r file; do case $file in */kube-scheduler/*) ;; *) rm -f "$file" ;; esac; done <"$W/certificates"
`,
	"sync": "#!/bin/sh\n", "sleep": "#!/bin/sh\n",
}

// machineWorld is a machine on which the script runs.
type machineWorld struct {
	t            *testing.T
	dir          string
	args         []string
	certificates []string
}

func newMachineWorld(t *testing.T, roles string) *machineWorld {
	t.Helper()
	w := &machineWorld{t: t, dir: t.TempDir()}
	in := machineOf(t, k3s, "a", roles)
	in.Cluster.Spec.DataDirectories = rkev1.DataDirectories{K8sDistro: rkev1.DataDirectory(w.path("data")),
		Provisioning: rkev1.DataDirectory(w.path("capr"))}
	i, _ := rotation(in, "scheduler", "kubelet")
	w.args = i.Args
	w.args[5] = "2"
	for name, content := range rotationPrograms {
		w.write("bin/"+name, content)
	}
	for file := range strings.SplitSeq(w.args[6], "\n") {
		w.certificates = append(w.certificates, file)
		w.write(strings.TrimPrefix(file, w.dir+"/"), "old")
	}
	w.write("certificates", strings.Join(w.certificates, "\n")+"\n")
	w.write("n", "0")
	w.write("running", "")
	return w
}

func (w *machineWorld) path(name string) string { return filepath.Join(w.dir, name) }

func (w *machineWorld) write(name, content string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(name)), 0o700); err != nil {
		w.t.Fatal(err)
	}
	syscall.ForkLock.RLock() // as in writePrograms
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(w.path(name), []byte(content), 0o700); err != nil {
		w.t.Fatal(err)
	}
}

func (w *machineWorld) exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// run runs the script, or one that was changed.
func (w *machineWorld) run(script string) (string, error) {
	args := slices.Clone(w.args)
	if script != "" {
		args[1] = script
	}
	return w.exec("/bin/sh", args...)
}

func (w *machineWorld) exec(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(w.t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "W="+w.dir, "PATH="+w.path("bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// check checks that the machine runs with other certificates.
func (w *machineWorld) check() {
	w.t.Helper()
	if !w.exists(w.path("running")) {
		w.t.Error("k3s does not run")
	}
	for _, file := range w.certificates {
		if content, err := os.ReadFile(file); err != nil || string(content) == "old" {
			w.t.Errorf("%s: %q, %v", file, content, err)
		}
	}
}

func (w *machineWorld) log() string {
	raw, _ := os.ReadFile(w.path("log"))
	return string(raw)
}

func TestRotationScript(t *testing.T) {
	for roles, want := range map[string]string{
		"ecw": "stop k3s\nk3s certificate rotate --data-dir DIR/data --service kubelet --service scheduler\nreset-failed k3s\nstart k3s\nis-active k3s\n",
		"w":   "reset-failed k3s-agent\nrestart k3s-agent\nis-active k3s-agent\n",
	} {
		w := newMachineWorld(t, roles)
		out, err := w.run("")
		if err != nil || !strings.Contains(out, "serving-kubelet.crt") {
			t.Errorf("%s: %v: %s", roles, err, out)
		}
		w.check()
		if diff := cmp.Diff(strings.ReplaceAll(want, "DIR", w.dir), w.log()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", roles, diff)
		}
		// A second time it does nothing.
		if out, err := w.run(""); err != nil || strings.ReplaceAll(want, "DIR", w.dir) != w.log() {
			t.Errorf("%s: %v: %s", roles, err, out)
		}
	}
}

// TestRotationScriptInterrupted ends the script at each of its lines. Run again, also after the machine has booted, it comes to its end;
// and where it has a chance to, it leaves the distribution running.
func TestRotationScriptInterrupted(t *testing.T) {
	lines := strings.Split(rotateCertificatesSh, "\n")
	stops := slices.Index(lines, "started=")
	for i, line := range lines {
		text := strings.TrimSpace(line)
		if i == 0 || text == "" || text == "'" || strings.HasPrefix(text, "#") || strings.HasSuffix(lines[i-1], `\`) {
			continue
		}
		t.Run(fmt.Sprintf("%d %s", i+1, text), func(t *testing.T) {
			t.Parallel()
			at := func(signal string) string {
				return strings.Join(slices.Insert(slices.Clone(lines), i, "kill -"+signal+" $$"), "\n")
			}
			for _, boots := range []bool{false, true} {
				if boots && i < stops {
					break
				}
				w := newMachineWorld(t, "ecw")
				_, _ = w.run(at("KILL"))
				if boots {
					if out, err := w.exec(w.path("bin/systemctl"), "start", "k3s"); err != nil {
						t.Fatal(out, err)
					}
				}
				if out, err := w.run(""); err != nil {
					t.Fatalf("after a boot: %t: %v: %s", boots, err, out)
				}
				w.check()
			}
			if i < stops {
				return
			}
			w := newMachineWorld(t, "ecw")
			_, _ = w.run(at("TERM"))
			if !w.exists(w.path("running")) {
				t.Error("SIGTERM leaves k3s stopped")
			}
			if out, err := w.run(""); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			w.check()
		})
	}
}

func TestRotationScriptFails(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*machineWorld)
		text   string
		again  func(*machineWorld)
	}{
		"nothing has changed": {change: func(w *machineWorld) { w.write("lazy", "") }, text: "still the same as before",
			again: func(w *machineWorld) { _ = os.Remove(w.path("lazy")) }},
		"the command fails": {change: func(w *machineWorld) { w.write("refuses", "") }, text: "service is not recognized",
			again: func(w *machineWorld) { _ = os.Remove(w.path("refuses")) }},
		"k3s does not start": {change: func(w *machineWorld) { w.write("broken", "") }, text: "k3s is not running 2 s after",
			again: func(w *machineWorld) { _ = os.Remove(w.path("broken")) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMachineWorld(t, "ecw")
			tc.change(w)
			out, err := w.run("")
			if err == nil || !strings.Contains(out, tc.text) {
				t.Fatalf("%v: %s", err, out)
			}
			if !w.exists(w.path("broken")) && !w.exists(w.path("running")) {
				t.Error("k3s does not run")
			}
			tc.again(w)
			if out, err := w.run(""); err != nil {
				t.Fatalf("again: %v: %s", err, out)
			}
			w.check()
		})
	}
	// Where there is nothing to replace, nothing is stopped.
	w := newMachineWorld(t, "ecw")
	for _, file := range w.certificates {
		_ = os.Remove(file)
	}
	if out, err := w.run(""); err == nil || !strings.Contains(out, "There are no certificates to replace") || w.log() != "" {
		t.Errorf("%v: %s%s", err, out, w.log())
	}
	// A certificate that this version does not make any more.
	w = newMachineWorld(t, "ecw")
	w.write("certificates", strings.Join(w.certificates[1:], "\n")+"\n")
	w.write("bin/k3s", strings.Replace(rotationPrograms["k3s"], "while read", `rm -f "`+w.certificates[0]+`"; while read`, 1))
	if out, err := w.run(""); err != nil || !strings.Contains(out, "1 certificates that there were before are not there any more") {
		t.Errorf("%v: %s", err, out)
	}
}
