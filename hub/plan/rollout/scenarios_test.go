package rollout

// scenarios are the simulations whose logs are golden files.
var scenarios = map[string]func(*scenario){
	"one-machine-with-all-roles": func(s *scenario) {
		s.add("a:ecw")
		s.converge("a new cluster of one machine")
		s.spec.Version = 2
		s.converge("its version changes")
		s.spec.Minor++
		s.converge("a manifest that the hub deploys changes")
	},
	"roles-added-one-by-one": func(s *scenario) {
		s.add("a:e").host("a").identity = false
		s.converge("an etcd machine registers")
		s.host("a").identity = true
		s.converge("its plan Secret is created")
		s.add("b:c")
		s.converge("a control plane machine registers")
		s.add("c:w")
		s.converge("a worker registers")
	},
	"three-servers-and-two-workers": func(s *scenario) {
		s.add("a:ecw", "b:ecw", "c:ecw", "v:w", "w:w")
		s.converge("a new cluster of five machines")
		s.spec.Version = 2
		s.converge("its version changes")
	},
	"upgrade-of-separate-roles-with-concurrency": func(s *scenario) {
		s.spec.controlPlane, s.spec.worker = "2", "50%"
		s.addRunning("e1:e", "e2:e", "e3:e", "c1:c", "c2:c", "c3:c", "w1:w", "w2:w", "w3:w")
		s.spec.Version = 2
		s.converge("the version of a cluster with separate roles changes")
	},
	"new-cluster-with-separate-roles": func(s *scenario) {
		s.add("e1:e", "e2:e", "e3:e", "c1:c", "c2:c", "w1:w", "w2:w")
		s.converge("a new cluster with separate roles")
	},
	"first-plan-fails": func(s *scenario) {
		s.spec.Bad = "install"
		s.add("a:ecw", "b:w")
		s.converge("the first machine fails")
		s.spec.Bad = ""
		s.converge("the configuration is corrected")
	},
	"upgrade-with-a-failing-server": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "v:w", "w:w")
		s.spec.Version, s.spec.Bad = 2, "start"
		s.converge("the new version does not start")
		s.spec.Bad = ""
		s.converge("the configuration is corrected")
	},
	"upgrade-with-a-failing-worker": func(s *scenario) {
		s.addRunning("a:ec", "w1:w", "w2:w", "w3:w")
		s.spec.Version = 2
		s.title("the version changes, and the disk of the first worker is full")
		s.runUntil("changing workers", func() bool { return s.host("w1").attempt != nil })
		bad := *s.host("w1").attempt
		bad.Bad = "install"
		s.host("w1").attempt, s.host("w1").delivered = &bad, &bad
		s.converge("the worker fails")
	},
	"worker-added-while-a-server-fails": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "w:w")
		s.spec.Restarted, s.spec.Bad = 1, "start"
		s.converge("the new configuration does not start")
		s.add("x:w")
		s.converge("a worker is added; its plan has the same error")
	},
	"worker-added-while-a-server-is-down": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "w:w")
		s.host("c").power = false
		s.converge("a server loses power")
		s.spec.Drained = 1
		s.add("x:w")
		s.converge("the configuration changes and a worker is added")
		s.host("c").power, s.host("c").startLeft = true, 1
		s.converge("the server is up again")
	},
	"init-node-deleted-before-its-first-plan": func(s *scenario) {
		s.add("a:ecw", "b:ecw").host("a").provisioned = false
		s.host("b").provisioned = false
		s.converge("two machines without infrastructure")
		s.host("a").deleting, s.host("b").provisioned = true, true
		s.converge("the first is deleted, the second gets its infrastructure")
	},
	"init-node-deleted-during-its-first-plan": func(s *scenario) {
		s.add("a:ecw", "b:ecw")
		s.title("two machines; the init node is deleted while its agent applies the plan")
		s.runUntil("applying", func() bool { return s.host("a").attempt != nil })
		s.host("a").deleting = true
		s.converge("it is deleted")
	},
	"init-node-deleted-while-another-joins": func(s *scenario) {
		s.add("a:ecw", "b:ecw", "c:ecw")
		s.promoteDelay = 3
		s.title("three machines; the init node is deleted while the second one is a learner")
		s.runUntil("learner", func() bool { return s.etcd["b"] == MemberLearner })
		s.host("a").deleting = true
		s.converge("it is deleted")
	},
	"init-node-deleted": func(s *scenario) {
		s.addRunning("a:ecw", "b:ecw", "c:ecw")
		s.host("a").deleting = true
		s.converge("the init node of a cluster of three is deleted")
	},
	"init-node-deleted-during-an-upgrade": func(s *scenario) {
		s.addRunning("a:ecw", "b:ecw", "c:ecw", "w:w")
		s.spec.Version = 2
		s.title("the version changes")
		s.runUntil("changing the second server", func() bool { return s.host("b").attempt != nil })
		s.host("a").deleting = true
		s.converge("the init node is deleted while the second server restarts")
	},
	"init-node-replaced-after-a-power-failure": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec")
		s.host("a").power = false
		s.converge("the init node loses power")
		s.host("a").deleting = true
		s.add("d:ec")
		s.converge("a MachineHealthCheck replaces it")
	},
	"all-etcd-machines-replaced-by-a-new-one": func(s *scenario) {
		s.addRunning("a:ecw", "b:ecw")
		s.removeHost("a")
		s.removeHost("b")
		delete(s.etcd, "a")
		s.add("z:ecw")
		s.converge("all machines are gone except a new one")
	},
	"first-machine-never-connects": func(s *scenario) {
		s.add("a:ecw").host("a").agent = false
		s.converge("its agent does not connect")
		s.host("a").deleting = true
		s.add("b:ecw")
		s.converge("it is deleted, and another machine registers")
	},
	"unhealthy-server-changes-first": func(s *scenario) {
		s.addRunning("a:ecw", "b:ecw", "c:ecw")
		s.host("b").unhealthy = true
		s.converge("the scheduler of the second server fails")
		s.spec.Restarted++
		s.converge("a change restarts all servers, the unhealthy one first")
	},
	"unhealthy-member-needed-for-quorum": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec")
		s.host("b").unhealthy, s.host("c").power = true, false
		s.converge("one server is unhealthy, another is down")
		s.spec.Restarted++
		s.converge("a change would repair the unhealthy one, but etcd would lose its quorum")
		s.host("c").power, s.host("c").startLeft = true, 1
		s.converge("the server that was down is up again")
	},
	"upgrade-without-network-plugin": func(s *scenario) {
		s.addRunning("a:ecw", "b:ecw", "c:ecw")
		s.setNetworkPlugin(false)
		s.converge("the network plugin fails: no Node is ready, and etcd is healthy")
		s.spec.Version = 2
		s.converge("the version changes")
	},
	"new-cluster-without-network-plugin": func(s *scenario) {
		s.add("a:ecw", "b:ecw", "c:ecw")
		s.setNetworkPlugin(false)
		s.converge("a new cluster; its user has to install a network plugin")
		s.spec.Version = 2
		s.converge("the version changes before that")
	},
	"kubelets-stopped-etcd-healthy": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec")
		s.host("a").noKubelet, s.host("b").noKubelet = true, true
		s.converge("two kubelets stop reporting")
		s.spec.Restarted++
		s.converge("a change restarts all servers")
		s.host("a").noKubelet, s.host("b").noKubelet = false, false
		s.converge("they report again")
	},
	"outdated-report-of-an-agent": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec")
		s.host("b").agent, s.host("b").failing = false, []string{probeEtcd, probeKubelet}
		s.converge("an agent stops after it has reported etcd unhealthy, and etcd recovers")
		s.spec.Restarted++
		s.converge("a change restarts all servers")
		s.host("b").agent = true
		s.converge("the agent is up again")
	},
	"agent-down-without-network-plugin": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec")
		s.host("c").agent = false
		s.setNetworkPlugin(false)
		s.converge("an agent stops, and the network plugin fails on all Nodes")
		s.spec.Version = 2
		s.converge("the version changes")
		s.host("c").agent = true
		s.converge("the agent is up again")
	},
	"unhealthy-member-changes-although-another-is-down": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "d:ec", "e:ec")
		s.host("b").power = false
		s.converge("a member loses power")
		s.host("d").unhealthy = true
		s.spec.Restarted++
		s.converge("another is unhealthy, and a change would repair it")
	},
	"plan-cannot-be-rendered": func(s *scenario) {
		s.add("a:ecw", "b:w")
		s.problem = "spec.rkeConfig.machineGlobalConfig.selinux: is a text; it takes true or false"
		s.converge("the configuration has an error")
	},
	"infrastructure-not-ready": func(s *scenario) {
		s.addRunning("a:ecw").add("b:w").host("b").provisioned = false
		s.converge("a machine is registered before its infrastructure is there")
		s.host("b").provisioned = true
		s.converge("the infrastructure is ready")
	},
	"node-reports-old-version": func(s *scenario) {
		s.addRunning("a:ecw")
		s.host("a").nodeInfo = "v1.0.0"
		s.disconnected, s.connected = true, false
		s.host("a").power = false
		s.converge("the Node still reports the old version")
		s.host("a").power, s.disconnected = true, false
		s.converge("it reports the new one")
	},
	"scale-down-from-three-to-one": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "w:w")
		s.host("b").deleting, s.host("c").deleting = true, true
		s.converge("two of three servers are deleted at once")
	},
	"scale-down-from-three-to-one-with-one-down": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "w:w")
		s.host("c").power = false
		s.converge("a server loses power")
		s.host("b").deleting, s.host("c").deleting = true, true
		s.converge("it is deleted together with a healthy one")
	},
	"last-member-deleted": func(s *scenario) {
		s.addRunning("a:ec", "w:w")
		s.host("a").deleting = true
		s.converge("the only etcd machine is deleted")
		s.add("b:ec")
		s.converge("another is added")
	},
	"replace-servers-one-by-one": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec")
		for _, pair := range [][2]string{{"a", "x:ec"}, {"b", "y:ec"}, {"c", "z:ec"}} {
			s.add(pair[1])
			s.converge("a machine is added")
			s.host(pair[0]).deleting = true
			s.converge("and %s is deleted", pair[0])
		}
	},
	"scale-down-during-an-upgrade": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "w1:w", "w2:w", "w3:w")
		s.spec.Version = 2
		s.title("the version changes")
		s.runUntil("changing the second server", func() bool { return s.host("b").attempt != nil })
		s.host("c").deleting, s.host("w1").deleting = true, true
		s.converge("a server and a worker are deleted")
	},
	"scale-up-during-an-upgrade": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "w1:w", "w2:w")
		s.spec.Version = 2
		s.title("the version changes")
		s.runUntil("changing the first server", func() bool { return s.host("a").attempt != nil })
		s.add("c:ec", "w3:w")
		s.converge("a server and a worker are added")
	},
	"version-changes-during-an-upgrade": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "w:w")
		s.spec.Version = 2
		s.title("the version changes")
		s.runUntil("changing the second server", func() bool { return s.host("b").attempt != nil })
		s.spec.Version = 3
		s.converge("it changes again")
	},
	"drain-with-hooks": func(s *scenario) {
		s.spec.drain, s.spec.hooks = true, true
		s.addRunning("a:ec", "b:ec", "c:ec", "w1:w", "w2:w")
		s.hookDelay = 2
		s.spec.Version = 2
		s.converge("the version changes; hooks run before and after each drain")
	},
	"drain-of-a-single-machine": func(s *scenario) {
		s.spec.drain, s.spec.hooks = true, true
		s.addRunning("a:ecw")
		s.spec.Version = 2
		s.converge("the version changes; a single machine is not drained, but the hooks run")
	},
	"drain-canceled": func(s *scenario) {
		s.spec.drain = true
		s.addRunning("a:ec", "w1:w", "w2:w")
		s.hookDelay = 5
		s.spec.Drained = 1
		s.title("a change needs a drain")
		s.runUntil("draining", func() bool { return s.host("w1").drain.Requested != "" })
		s.spec.Drained = 0
		s.converge("the change is reverted while the first worker is drained")
	},
	"drain-blocked-by-a-disruption-budget": func(s *scenario) {
		s.spec.drain = true
		s.addRunning("a:ec", "w1:w", "w2:w")
		s.spec.Drained = 1
		s.title("a change needs a drain")
		s.runUntil("changing workers", func() bool { return s.host("a").applied.Drained == 1 && s.host("a").drain == (Drain{}) })
		s.hookDelay = 1000
		s.runUntil("draining", func() bool { return s.host("w1").drain.Requested != "" })
		s.host("w1").drain.Error = "the disruption budget default/web allows no Pod to be evicted: web-0"
		s.converge("a disruption budget blocks the drain")
		s.hookDelay, s.host("w1").drainLeft, s.host("w1").drain.Error = 0, 0, ""
		s.converge("the disruption budget allows it")
	},
	"change-without-restart": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "w1:w", "w2:w")
		s.spec.Minor++
		s.converge("a change that restarts nothing is delivered to all machines at once")
	},
	"restart-without-drain": func(s *scenario) {
		s.spec.drain = true
		s.addRunning("a:ec", "w1:w", "w2:w")
		s.spec.Restarted++
		s.converge("a change restarts the distribution, which does not affect workloads")
	},
	"hub-killed-after-each-write": func(s *scenario) {
		s.spec.drain = true
		s.addRunning("a:ec", "b:ec", "c:ec", "w1:w", "w2:w")
		s.spec.Version = 2
		s.title("the hub is killed after each write")
		s.maxWrites = 1
		s.converge("the version changes")
		s.maxWrites = -1
		s.converge("the hub is not killed any more")
	},
	"connection-lost-during-an-upgrade": func(s *scenario) {
		s.spec.drain = true
		s.addRunning("a:ec", "b:ec", "c:ec", "w1:w", "w2:w")
		s.spec.Version = 2
		s.title("the version changes")
		s.runUntil("changing the second server", func() bool { return s.host("b").attempt != nil })
		s.disconnected = true
		s.converge("the hub does not reach the cluster's API server")
		s.disconnected = false
		s.converge("the hub reaches it again")
	},
	"replace-two-servers-at-once": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec")
		s.host("a").deleting, s.host("b").deleting = true, true
		s.add("x:ec", "y:ec")
		s.converge("two of three are replaced at once")
	},
	"learner-not-promoted": func(s *scenario) {
		s.addRunning("a:ec").add("b:ec", "c:ec")
		s.promoteDelay = 1000
		s.converge("a second and a third server are added, and the second stays a learner")
		s.host("b").promoteLeft, s.promoteDelay = 0, 0
		s.converge("it is promoted")
	},
}
