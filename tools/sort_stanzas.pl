# Standard input's stanzas in the order of the bytes of their field Package, one empty line after each; of
# several with the same one the last stays. What `ashlarctl dump --format=stanza` must write, said without it.
use strict;
use warnings;
my %stanza;
local $/ = "";
while (<STDIN>) {
    s/\n*\z/\n/;
    /^Package:[ \t]*(.*?)[ \t]*$/m or die "a stanza without Package\n";
    $stanza{$1} = $_;
}
print "$stanza{$_}\n" for sort keys %stanza;
