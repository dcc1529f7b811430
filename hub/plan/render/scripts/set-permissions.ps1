# Leaves what may hold secrets to administrators and the system, whatever the folders above allow.
$ErrorActionPreference = 'Stop'

$paths = @(
    # PATHS
)
foreach ($path in $paths) {
    if (-not (Test-Path -LiteralPath $path)) { continue }
    # Owner and group, nothing inherited, full access for BUILTIN\Administrators (BA) and SYSTEM (SY); OICI hands it down in folders.
    $inherit = if (Test-Path -LiteralPath $path -PathType Container) { 'OICI' } else { '' }
    $wanted = "O:BAG:SYD:PAI(A;$inherit;FA;;;BA)(A;$inherit;FA;;;SY)"
    $acl = Get-Acl -LiteralPath $path
    if ($acl.Sddl -eq $wanted) { continue }
    $acl.SetSecurityDescriptorSddlForm($wanted)
    Set-Acl -LiteralPath $path -AclObject $acl
    Write-Output "restricted $path"
}
