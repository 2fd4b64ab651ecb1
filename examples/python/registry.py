"""Which sandboxes there are; one of them looked at, used and ended: python registry.py vm-a1b2c3d4"""

import sys

from sandbox import Sandbox, get_sandbox, kill_sandbox, list_sandboxes

# List all running VMs
for vm in list_sandboxes(status="running"):
    print(f"{vm.id}: {vm.image} (PID {vm.pid})")

# Get VM details
vm = get_sandbox(sys.argv[1])
print(vm.config)

# Attach to existing VM (if socket available)
sb = Sandbox.attach(sys.argv[1])
result = sb.exec("echo hello")
print(result.stdout)
sb.close()

# Kill a VM
kill_sandbox(sys.argv[1])
