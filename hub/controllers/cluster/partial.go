package cluster

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/hub/access/clusteragent"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/util/cause"
)

// partialProblems are the problems that concern one part of a spec only; the rest is passed on.
func partialProblems(spec provisioningv1.ClusterSpec) []*cause.Cause {
	var problems []*cause.Cause
	if ca := spec.LocalClusterAuthEndpoint.CACerts; ca != "" {
		if err := checkCertificates(ca); err != nil {
			problems = append(problems, cause.New("InvalidCACerts", "spec.localClusterAuthEndpoint.caCerts: %v; write PEM certificates",
				err))
		}
	}
	if name := spec.DefaultPodSecurityAdmissionConfigurationTemplateName; name != "" {
		problems = append(problems, cause.New("PodSecurityTemplateNotSupported",
			"spec.defaultPodSecurityAdmissionConfigurationTemplateName is %q: such templates have no effect; "+
				"put the admission configuration into a Secret that spec.rkeConfig.machineSelectorFiles names, and its path into kube-apiserver-arg "+
				"(admission-control-config-file) of spec.rkeConfig.machineGlobalConfig", name))
	}
	for field, tolerations := range agentTolerations(spec) {
		for i, toleration := range tolerations {
			if fault := clusteragent.TolerationFault(toleration); fault != "" {
				problems = append(problems, cause.New("InvalidToleration", "spec.%s.appendTolerations[%d]%s", field, i, fault))
			}
		}
	}
	slices.SortFunc(problems, func(a, b *cause.Cause) int { return strings.Compare(a.Message, b.Message) })
	return problems
}

func agentTolerations(spec provisioningv1.ClusterSpec) map[string][]corev1.Toleration {
	all := map[string][]corev1.Toleration{}
	if c := spec.ClusterAgentDeploymentCustomization; c != nil {
		all["clusterAgentDeploymentCustomization"] = c.AppendTolerations
	}
	if c := spec.FleetAgentDeploymentCustomization; c != nil {
		all["fleetAgentDeploymentCustomization"] = c.AppendTolerations
	}
	if c := spec.WebhookDeploymentCustomization; c != nil {
		all["webhookDeploymentCustomization"] = c.AppendTolerations
	}
	return all
}

// checkCertificates accepts only PEM certificates, at least one.
func checkCertificates(text string) error {
	rest := []byte(text)
	for found := false; ; found = true {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil && found {
			return nil
		}
		if block == nil {
			return errors.New("contains no PEM certificate")
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("contains a %s", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("parsing a certificate: %w", err)
		}
	}
}
