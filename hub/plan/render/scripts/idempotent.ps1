# Runs a command once in each attempt at a plan:
#   idempotent.ps1 KEY HASH_OF_VALUE HASH_OF_COMMAND COMMAND FOLDER [ARGUMENT...]
# An attempt is kept in FOLDER\idempotence only when the command has succeeded: one that was cut off in its middle runs again.
param(
    [Parameter(Mandatory, Position = 0)][string]$Key,
    [Parameter(Mandatory, Position = 1)][string]$ValueHash,
    [Parameter(Mandatory, Position = 2)][string]$CommandHash,
    [Parameter(Mandatory, Position = 3)][string]$Command,
    [Parameter(Mandatory, Position = 4)][string]$Folder,
    [Parameter(ValueFromRemainingArguments)][string[]]$Rest
)
$ErrorActionPreference = 'Stop'

$state = Join-Path $Folder "idempotence\$Key\$CommandHash\$ValueHash"
$file = Join-Path $state 'last-attempt'
$attempt = "$env:CATTLE_AGENT_ATTEMPT_NUMBER"

if ($attempt -and (Test-Path -LiteralPath $file) -and ((Get-Content -LiteralPath $file -TotalCount 1) -eq $attempt)) {
    Write-Output "$Key was done in attempt $attempt already"
    exit 0
}
$global:LASTEXITCODE = 0
& $Command @Rest
if ($LASTEXITCODE -ne 0) { exit $LASTEXITCODE }

New-Item -ItemType Directory -Force -Path $state | Out-Null
Set-Content -LiteralPath "$file.new" -Value $attempt
Move-Item -Force -LiteralPath "$file.new" -Destination $file
