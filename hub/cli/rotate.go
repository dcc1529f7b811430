package cli

import (
	"github.com/spf13/cobra"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

func newRotate() *cobra.Command {
	return group(&cobra.Command{
		Use:   "rotate",
		Short: "Replace certificates, keys and tokens",
		Long:  "Replace what a cluster trusts. Each command creates an operation and, with --wait, follows it to its end.",
	}, newRotateCertificates(), newRotateEncryptionKeys(), newRotateTokens())
}

func newRotateCertificates() *cobra.Command {
	var services []string
	cmd := operationCommand(&cobra.Command{
		Use:   "certificates <namespace>/<cluster>",
		Short: "Replace the certificates of a cluster's components",
		Long: `Replace the certificates of a cluster's components: of all, or of the services that are named. It creates a CertificateRotation,
which is kept for --ttl after its end. The machines restart RKE2 or k3s one after the other, without a drain. The certificate authorities
stay.`,
		Example: "  hub rotate certificates fleet-default/demo --wait\n" +
			"  hub rotate certificates fleet-default/demo --service controller-manager,scheduler",
	}, func() operationv1.Operation { return certificateRotation(services) })
	cmd.Flags().StringSliceVar(&services, "service", nil,
		"service whose certificates are replaced, such as scheduler (repeatable; default: all)")
	return cmd
}

func certificateRotation(services []string) *operationv1.CertificateRotation {
	op := &operationv1.CertificateRotation{}
	for _, service := range services {
		op.Spec.Services = append(op.Spec.Services, operationv1.CertificateService(service))
	}
	return op
}

func newRotateEncryptionKeys() *cobra.Command {
	return operationCommand(&cobra.Command{
		Use:   "encryption-keys <namespace>/<cluster>",
		Short: "Replace the key that encrypts Secrets",
		Long: `Replace the key that a cluster's Secrets are encrypted with in etcd, and write all Secrets with the new one. It creates an
EncryptionKeyRotation, which is kept for --ttl after its end. The servers restart one after the other, without a drain. Save a snapshot
before: "hub snapshot create".`,
		Example: "  hub rotate encryption-keys fleet-default/demo --wait",
	}, func() operationv1.Operation { return &operationv1.EncryptionKeyRotation{} })
}

func newRotateTokens() *cobra.Command {
	return operationCommand(&cobra.Command{
		Use:   "tokens <namespace>/<cluster>",
		Short: "Replace the tokens by which machines join",
		Long: `Replace the tokens by which servers and agents join a cluster. It creates a TokenRotation, which is kept for --ttl after its end.
The servers restart one after the other; agents restart by an ordinary rollout afterwards. A snapshot from before needs the old token, which
the hub keeps.`,
		Example: "  hub rotate tokens fleet-default/demo --wait",
	}, func() operationv1.Operation { return &operationv1.TokenRotation{} })
}
