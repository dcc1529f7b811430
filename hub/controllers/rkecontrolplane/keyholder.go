package rkecontrolplane

import "github.com/drover-dev/drover/hub/plan/operation"

// keyHolderMark is the value of cluster.x-k8s.io/skip-remediation on the machine on which alone the new key of an EncryptionKeyRotation is.
const keyHolderMark = "rke.cattle.io/encryption-key"

// protectKeyHolder keeps health checks from replacing the machine on which alone a new key is, with which Secrets are written. The mark
// stays when the rotation ends there without success, until another one has written all Secrets with a key that all servers have.
func (s *scope) protectKeyHolder(m *machine, k *marks) {
	if holder, rotating := operation.KeyHolder(s.operation); rotating {
		k.setSkip(keyHolderMark, m.machine.Name == holder)
	}
}
