package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/cli"
	"github.com/drover-dev/drover/hub/testenv"
)

// machineCommands shows what the driver has written, and the key of the machine, to who may read its Secret.
func machineCommands(t *testing.T, namespace string) {
	t.Helper()
	name := namespace + "/" + labMachines(t, namespace)[0].GetName()
	run := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := cli.Main(append(append([]string{"machine"}, args...), "--kubeconfig", env.Server.Kubeconfig()), &out, &errs)
		return code, out.String(), errs.String()
	}
	code, out, errs := run("logs", name)
	if code != 0 || !strings.Contains(out, "creating driven-all-") || !strings.Contains(out, "with the token [redacted]") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	file := filepath.Join(t.TempDir(), "key")
	if code, out, errs = run("ssh-key", name, "--file", file); code != 0 || out != "" {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	key, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ssh.ParsePrivateKey(key); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if code, out, _ = run("ssh-key", name); code != 0 || out != string(key) {
		t.Errorf("%d: another key", code)
	}
	if code, _, errs = run("logs", namespace+"/none"); code != 1 || !strings.Contains(errs, "none") {
		t.Errorf("%d: %s", code, errs)
	}
}

// nothingLeft waits until no object of a Job is left in the namespace of the hub.
func nothingLeft(t *testing.T) {
	t.Helper()
	testenv.Until(t, "the objects of Jobs to be deleted", func() error {
		return nothingLabeled(t, client.MatchingLabels{"app.kubernetes.io/component": "node-driver"})
	})
}

// nothingLabeled looks for objects of Jobs that have labels.
func nothingLabeled(t *testing.T, labels client.MatchingLabels) error {
	t.Helper()
	for _, list := range []client.ObjectList{
		&batchv1.JobList{}, &corev1.SecretList{}, &corev1.ServiceAccountList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{},
	} {
		if err := jobClient(t).List(t.Context(), list, labels); err != nil {
			return err
		}
		if n := meta.LenList(list); n > 0 {
			return fmt.Errorf("%d objects are left in %T", n, list)
		}
	}
	return nil
}

// noLeaks looks for the token where users and operators read.
func noLeaks(t *testing.T, namespace string) {
	t.Helper()
	log, err := os.ReadFile(env.Log)
	if err != nil {
		t.Fatal(err)
	}
	specs, err := json.Marshal(kubelet.Jobs())
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{"the hub's log": string(log), "the output of Pods": kubelet.Output(), "Jobs": string(specs),
		"machines": fmt.Sprint(labMachines(t, namespace))}
	var secrets corev1.SecretList
	if err := env.Client.List(t.Context(), &secrets, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets.Items {
		texts["Secret "+s.Name] = string(s.Data["log"]) + string(s.Data["progress"])
	}
	for where, text := range texts {
		if strings.Contains(text, cloudToken) {
			t.Errorf("%s: the cloud token is in it", where)
		}
	}
}
