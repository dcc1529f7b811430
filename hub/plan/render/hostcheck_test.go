package render

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/plans"
)

// TestHostCheck: what a machine is checked for, before its installation.
func TestHostCheck(t *testing.T) {
	const stamp = "/var/lib/rancher/rke2/system-agent-installer/rke2_restart_stamp"
	for name, tc := range map[string]struct{ version, roles, config, want string }{
		"nothing":                {rke2, "ec", `{}`, ""},
		"server of CIS":          {rke2, "ec", `{"profile": "cis"}`, stamp + " true true /proc/sys"},
		"server without etcd":    {rke2, "c", `{"profile": "cis"}`, stamp + " true true /proc/sys"},
		"worker of CIS":          {rke2, "w", `{"profile": "cis"}`, stamp + " true false /proc/sys"},
		"earlier release":        {"v1.28.1+rke2r1", "w", `{"profile": "cis-1.23"}`, stamp + " true false /proc/sys"},
		"server with user etcd":  {rke2, "e", `{"profile": "etcd"}`, stamp + " false true /proc/sys"},
		"worker with user etcd":  {rke2, "w", `{"profile": "etcd"}`, ""},
		"kernel's defaults":      {k3s, "w", `{"protect-kernel-defaults": "true"}`, "/var/lib/rancher/k3s/restart_stamp true false /proc/sys"},
		"not kernel's defaults":  {k3s, "ecw", `{"protect-kernel-defaults": false}`, ""},
		"profile that k3s lacks": {k3s, "ecw", `{"profile": "cis"}`, ""},
	} {
		in := machineOf(t, tc.version, "a", tc.roles)
		in.Cluster.Spec.MachineGlobalConfig = config(t, tc.config)
		plan, problems := Plan(in)
		if err := problems.Err(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		check := plans.Instruction{}
		if plan.Instructions[0].Name == checkHostInstruction {
			check = plan.Instructions[0]
		}
		if tc.want == "" && len(plan.Instructions) == 1 {
			continue
		}
		if !check.SaveOutput {
			t.Errorf("%s: Rancher's agent would not say what is missing", name)
		}
		if len(check.Args) < 3 || strings.Join(check.Args[3:], " ") != tc.want || len(check.Env) != 1 ||
			check.Env[0] != install(plan).Env[0] {
			t.Errorf("%s: got %q with %q", name, check.Args, check.Env)
		}
		in.Cluster.Spec.UnmanagedConfig = true
		if unmanaged, _ := Plan(in); len(unmanaged.Instructions) != 1 {
			t.Errorf("%s: a configuration that is not the hub's is checked", name)
		}
	}
}

// TestHostCheckBeforeRestore: a machine is checked before all machines are stopped for a restore, after which it could not start.
func TestHostCheckBeforeRestore(t *testing.T) {
	in := machineOf(t, rke2, "a", "ec")
	in.Cluster.Spec.MachineGlobalConfig = config(t, `{"profile": "cis"}`)
	wanted, problems := Plan(in)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	op, task := restoring("a", nil), operation.Task{Step: "Preflight", Name: operation.TaskCheckSnapshot, Apart: true}
	plan := WithTask(in.Cluster, in.Machine, wanted, op, task)
	names := []string{InstallInstruction, checkHostInstruction, string(operation.TaskCheckSnapshot)}
	if diff := cmp.Diff(names, instructionNames(plan)); diff != "" {
		t.Fatal(diff)
	}
	check := plan.Instructions[1]
	got, want := strings.Join(check.Args[3:], " "), "/dev/null true true /proc/sys"
	if got != want || !slices.Contains(check.Env, "RESTART_STAMP=restore") {
		t.Errorf("got %q with %q", got, check.Env)
	}
	if diff := cmp.Diff(names[:1], instructionNames(WithoutTask(plan))); diff != "" {
		t.Errorf("after the check: %s", diff)
	}
}

func TestHostCheckScript(t *testing.T) {
	dir := t.TempDir()
	writePrograms(t, dir, map[string]string{"getent": "#!/bin/sh\n[ -e \"$FAKE/$1-$2\" ]\n"})
	write := func(files map[string]string) {
		for name, content := range files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func(kernel, user string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", checkHostSh, checkHostInstruction, filepath.Join(dir, "stamp"), kernel, user,
			dir)
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "FAKE=" + dir, "RESTART_STAMP=new"}
		var out strings.Builder
		cmd.Stderr = &out
		err := cmd.Run()
		return strings.TrimSpace(out.String()), err
	}
	write(map[string]string{"vm/overcommit_memory": "0\n", "vm/panic_on_oom": "0\n", "kernel/panic": "10\n", "stamp": "old\n"})
	const want = "The machine is not prepared for its configuration: sysctl vm.overcommit_memory=1 is needed, and it is 0; " +
		"sysctl kernel.panic_on_oops=1 is needed, and it is not known; there is no user etcd; there is no group etcd"
	if out, err := run("true", "true"); err == nil || out != want {
		t.Errorf("got %v: %s", err, out)
	}
	if out, err := run("false", "true"); err == nil || strings.Contains(out, "sysctl") {
		t.Errorf("without the kernel: got %v: %s", err, out)
	}
	write(map[string]string{"vm/overcommit_memory": "1\n", "kernel/panic_on_oops": "1\n"})
	if out, err := run("true", "false"); err != nil || out != "" {
		t.Errorf("a worker: got %v: %s", err, out)
	}
	write(map[string]string{"passwd-etcd": "", "group-etcd": ""})
	if out, err := run("true", "true"); err != nil || out != "" {
		t.Errorf("a prepared server: got %v: %s", err, out)
	}
	// What runs goes on: it is looked at again when it would restart.
	write(map[string]string{"vm/overcommit_memory": "0\n", "stamp": "new\n"})
	if out, err := run("true", "true"); err != nil || out != "" {
		t.Errorf("without a restart: got %v: %s", err, out)
	}
}
