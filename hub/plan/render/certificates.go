package render

import (
	_ "embed"
	"path"
	"slices"
	"strings"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/plans"
)

// rotateCertificatesSh is in the instruction itself: a file of its own would stay on the machine.
//
//go:embed scripts/rotate-certificates.sh
var rotateCertificatesSh string

// rotationSeconds is how long the distribution may take to run with other certificates.
const rotationSeconds = "600"

// rotateCertificates is the instruction that replaces certificates and restarts the distribution. A server gets new keys too; an agent is
// given new certificates by its server at each start.
func (t *taskBuilder) rotateCertificates() plans.Instruction {
	names := t.Cluster.names()
	i := plans.Instruction{SaveOutput: true, CommonInstruction: plans.CommonInstruction{Name: RestartInstruction, Env: []string{t.id}}}
	if t.Machine.windows() {
		i.Command, i.Args = "powershell.exe", []string{"-NonInteractive", "-Command", "Restart-Service -Name " + names.Runtime}
		return i
	}
	op, is := t.op.(*operationv1.CertificateRotation)
	if !is {
		op = &operationv1.CertificateRotation{}
	}
	m := t.Machine
	services := operation.RotatedServices(op, names.Runtime, m.Etcd, m.ControlPlane, m.Worker)
	certificates, removals := t.certificateFiles(services)
	unit, command := names.AgentUnit, []string(nil)
	if m.server() {
		unit, command = names.ServerUnit, []string{names.Runtime, "certificate", "rotate"}
		if t.dataDir != names.DataDir {
			command = append(command, "--data-dir", t.dataDir)
		}
		if len(op.Spec.Services) > 0 {
			for _, service := range services {
				command = append(command, "--service", string(service))
			}
		}
	}
	i.Command = "/bin/sh"
	state := t.provisioningDir() + "/certificate-rotation/" + hexOf(t.id)
	i.Args = append([]string{"-c", rotateCertificatesSh, "rotate-certificates", state, unit, rotationSeconds, strings.Join(certificates, "\n"), strings.Join(removals, "\n")}, command...)
	return i
}

// certificateFiles are the certificates of services that the machine may have, and what has to be removed to have others made: the
// serving certificates of components, which RKE2 and k3s do not know before v1.33.1, and on RKE2 what is made of them.
func (t *taskBuilder) certificateFiles(services []operationv1.CertificateService) (certificates, removals []string) {
	tls, agent, runtime := t.dataDir+"/server/tls/", t.dataDir+"/agent/", t.Cluster.names().Runtime
	for _, service := range services {
		for _, name := range serverCertificates[service] {
			certificates = append(certificates, tls+name+".crt")
		}
		for _, name := range agentCertificates[service] {
			certificates = append(certificates, agent+name+".crt")
		}
		switch s := string(service); s {
		case "cloud-controller":
			certificates = append(certificates, tls+"client-"+runtime+"-cloud-controller.crt")
		case runtime + "-controller":
			certificates = append(certificates, agent+"client-"+runtime+"-controller.crt")
		}
	}
	if !t.Machine.server() {
		return certificates, nil
	}
	rke2 := t.Cluster.Release.Runtime == release.RKE2
	for _, c := range components {
		if !t.Machine.ControlPlane || !slices.Contains(services, c.service) || !t.keepsCertificate(c) {
			continue
		}
		file := t.certDir(c) + "/" + c.name
		certificates = append(certificates, file+".crt")
		removals = append(removals, file+".crt", file+".key")
		if rke2 {
			removals = append(removals, agent+"pod-manifests/"+c.name+".yaml")
		}
	}
	if rke2 {
		removals = append(removals, t.dataDir+"/server/manifests/rke2-*.yaml")
	}
	return certificates, removals
}

// serverCertificates are the certificates of services below server/tls, agentCertificates those below agent, without their ending.
var (
	serverCertificates = map[operationv1.CertificateService][]string{
		"admin":              {"client-admin"},
		"api-server":         {"client-kube-apiserver", "serving-kube-apiserver"},
		"auth-proxy":         {"client-auth-proxy"},
		"controller-manager": {"client-controller"},
		"etcd":               {"etcd/client", "etcd/server-client", "etcd/peer-server-client"},
		"scheduler":          {"client-scheduler"},
		"supervisor":         {"client-supervisor"},
	}
	agentCertificates = map[operationv1.CertificateService][]string{
		"kube-proxy": {"client-kube-proxy"},
		"kubelet":    {"client-kubelet", "serving-kubelet"},
	}
)

// RotatedProbes are the probes of a control plane machine that see certificates of the distribution, or of a folder that the hub has them
// kept in: those that a CertificateRotation replaces. Others are the user's own.
func RotatedProbes(c Cluster, m Machine) []string {
	b := builder{Inputs: Inputs{Cluster: c, Machine: m}}
	b.mergeArgs()
	probes := []string{APIServerProbe}
	for _, component := range components {
		if b.keepsCertificate(component) {
			probes = append(probes, component.name)
		}
	}
	return probes
}

// WatchedCertificates are the files with certificates on a machine that a CertificateRotation replaces, and by which service each is used.
// Agents report when those of plans.CertificateFiles end. None are known where the hub does not write the configuration.
func WatchedCertificates(c Cluster, m Machine) map[string]string {
	if c.Spec.UnmanagedConfig || m.windows() {
		return nil
	}
	t := taskBuilder{builder: builder{Inputs: Inputs{Cluster: c, Machine: m}}}
	t.mergeArgs()
	watched := map[string]string{}
	for _, service := range operation.RotatedServices(&operationv1.CertificateRotation{}, t.Cluster.names().Runtime, m.Etcd, m.ControlPlane,
		m.Worker) {
		files, _ := t.certificateFiles([]operationv1.CertificateService{service})
		for _, file := range files {
			watched[path.Clean(file)] = string(service)
		}
	}
	return watched
}
