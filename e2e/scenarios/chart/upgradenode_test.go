//go:build e2e && full

package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// upgradeJob is what the system-upgrade-controller makes of the Plan in docs/images.md for one node
// (https://github.com/rancher/system-upgrade-controller, pkg/upgrade/job).
const upgradeJob = `apiVersion: batch/v1
kind: Job
metadata: {name: apply-system-agent-upgrader, namespace: kube-system}
spec:
  backoffLimit: 99
  template:
    spec:
      hostIPC: true
      hostPID: true
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      restartPolicy: Never
      nodeSelector: {kubernetes.io/hostname: HOST}
      tolerations: [{operator: Exists}]
      volumes:
        - {name: host-root, hostPath: {path: /, type: Directory}}
        - name: pod-info
          downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}
      containers:
        - name: upgrade
          image: docker.io/drover/system-agent:VERSION
          securityContext: {privileged: true, capabilities: {add: [CAP_SYS_BOOT]}}
          volumeMounts:
            - {name: host-root, mountPath: /host}
            - {name: pod-info, mountPath: /run/system-upgrade/pod, readOnly: true}
          env:
            - {name: SYSTEM_UPGRADE_NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
            - {name: SYSTEM_UPGRADE_PLAN_NAME, value: system-agent-upgrader}
            - {name: CATTLE_ROLE_NONE, value: "true"}
`

// upgradeByJob upgrades the agent of the management cluster's host with a Job of the system-agent's image, as the
// system-upgrade-controller does.
func (m *management) upgradeByJob(t *testing.T) {
	t.Helper()
	buildImages(t, "--version", version, "--only", "system-agent", "--push", strings.TrimPrefix(shared.RegistryURL(), "http://"), "--insecure")
	file := filepath.Join(shared.Dir, "upgrade-job.yaml")
	job := strings.NewReplacer("HOST", m.host.Name, "VERSION", version).Replace(upgradeJob)
	suite.Must(t, os.WriteFile(file, []byte(job), 0o600))
	shared.RunKubectl(t, m.kubeconfig, "apply", "--filename", file)
	out, err := shared.TryKubectl(t.Context(), m.kubeconfig, "--namespace", "kube-system", "wait", "--for=condition=Complete", "--timeout=2m",
		"job/apply-system-agent-upgrader")
	if err != nil {
		logs, _ := shared.TryKubectl(t.Context(), m.kubeconfig, "--namespace", "kube-system", "logs", "job/apply-system-agent-upgrader")
		t.Fatalf("%v: %s\n%s", err, out, logs)
	}
}

// buildImages runs the builder of images with the programs in bin.
func buildImages(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"--from", filepath.Join(shared.Dir, "programs-"+version)}, args...)
	cmd := imagesCommand(t.Context(), shared.Lab, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("building images: %w: %s", err, out))
	}
}
