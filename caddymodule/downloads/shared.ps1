
# Get-Connector downloads, checks and unpacks the connector into a folder.
function Get-Connector($to) {
	$arch = $env:PROCESSOR_ARCHITEW6432
	if (-not $arch) { $arch = $env:PROCESSOR_ARCHITECTURE }
	$archive = $archives["windows/$($arch.ToLower())"]
	if (-not $archive) { throw "The gateway has no connector for windows/$arch. Its operator can add it with ./xcaddy.sh connectors in the gateway's clone. $otherwise" }

	New-Item -ItemType Directory -Force $to | Out-Null
	$zip = Join-Path $to 'connector.zip'
	Write-Host "Downloading $($archive.name)"
	curl.exe -fsSL @unverified -o $zip "$console/connectors/$($archive.name)"
	if ($LASTEXITCODE -ne 0) { throw "Cannot download $($archive.name)." }
	if ((Get-FileHash -Algorithm SHA256 $zip).Hash -ne $archive.sha256) {
		Remove-Item $zip
		throw "$($archive.name) is damaged: its SHA-256 differs from the gateway's. Try again."
	}
	$program = Join-Path $to 'connector.exe'
	if (Test-Path $program) { Move-Item -Force $program "$program.old" } # it may be running
	Expand-Archive -Force $zip $to
	Remove-Item $zip
}

$ErrorActionPreference = 'Stop'
Main @args
